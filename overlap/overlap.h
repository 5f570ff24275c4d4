// The interface of overlapped products inside the library: the product of two operands and the
// collective beside it, for the user's functions, their derivatives and the pass of jit.
#pragma once
#include <cstdint>
#include <string>

#include "core/compiler/lowering/called_program.h"
#include "shmap/overlap.h"

namespace shmap {

enum class OverlapKind : std::uint8_t {
  gather,           // an operand is gathered, then multiplied
  scatter,          // the product is summed over the ranks, and each rank keeps a piece
  exchange,         // an operand is exchanged (all_to_all), then multiplied
  exchange_result,  // the product is exchanged
};

// An einsum whose dims have a letter each. No term has a letter twice, and each letter is in two of
// the three terms. A letter has the same extent wherever it occurs; an operand that is moved counts
// with its extents after the gather or the exchange.
struct OverlapSpec {
  OverlapKind kind = OverlapKind::gather;
  std::string a, b, out;
  char part = 0;    // the dim that is gathered, scattered, or split among the ranks
  char joined = 0;  // exchanges: the dim along which the pieces of the ranks are joined
  int operand = 0;  // gather, exchange: the operand that is moved
  Axes axes;
  int ranks = 1;
  Overlap form = Overlap::automatic;  // the form that was asked for

  const std::string& labels(int i) const { return i == 0 ? a : b; }
  bool moves_operand() const {
    return kind == OverlapKind::gather || kind == OverlapKind::exchange;
  }
  // The dim of the product along which a step of a ring handles one piece.
  char cut() const { return kind == OverlapKind::exchange ? joined : part; }
};

// The extents of an operand of the einsum, from those of a device's block.
Shape assembled(const OverlapSpec& spec, int operand, const Shape& block);
// The extent of each letter of the einsum.
std::int64_t extent_of(const OverlapSpec& spec, char label, const Shape& a, const Shape& b);
// The position of a label among labels; -1 if it is not there.
int place_of(const std::string& labels, char label);

// The primitives, one for each kind. The program of an equation is that of its form.
extern Primitive all_gather_einsum_p, einsum_psum_scatter_p, all_to_all_einsum_p,
    einsum_all_to_all_p;
struct OverlapParams : CalledParamsOf<OverlapParams> {
  OverlapSpec spec;
  Overlap form = Overlap::ring;  // the form of the program
  void visit(ParamVisitor& v) const override;
};

// Computes the result under the current trace: by operations at once, or as one equation. The
// operands have one dtype; they are cast to vary over the same axes.
Array run_overlapped(const OverlapSpec& spec, Array a, Array b, SourceLine source);
// The program of a form (ring or two_rings) for operands of these types, which vary over the same
// axes.
JaxprRef overlapped_program(const OverlapSpec& spec, Overlap form, const ShapedArray& a,
                            const ShapedArray& b, SourceLine source);
// Chooses the form, with the predicted times: by the sizes, the kind of devices and the hosts among
// which the axes lie (overlap/model.h), so that all processes choose alike.
OverlapChoice choose_overlap(const OverlapSpec& spec, const ShapedArray& a, const ShapedArray& b);

// The operations of a form (not automatic) under the current trace (rings.cpp).
Array overlapped_ops(const OverlapSpec& spec, Overlap form, const Array& a, const Array& b,
                     SourceLine source);

const char* to_text(Overlap form);

// The rules (rules.cpp).
void jvp_overlapped(JvpCall& call);
void transpose_overlapped(TransposeCall& call);
void batch_overlapped(BatchCall& call);

}  // namespace shmap
