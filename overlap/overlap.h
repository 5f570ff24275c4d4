// Overlapped products, inside: which product of two operands goes with which collective, as the
// user's functions, their derivatives and the pass of jit put it.
#pragma once
#include <cstdint>
#include <string>

#include "core/transforms/lowering/called_program.h"
#include "shmap/overlap.h"

namespace shmap {

enum class OverlapKind : std::uint8_t {
  gather,           // an operand is gathered, then multiplied
  scatter,          // the product is summed over the ranks, each of which keeps a part
  exchange,         // an operand is exchanged (all_to_all), then multiplied
  exchange_result,  // the product is exchanged
};

// An einsum whose dims have a letter each. In no operand is a letter twice, each is in two of the
// three, and a dim has the same extent wherever its letter is: that of an operand which travels is
// what it is when it has come together.
struct OverlapSpec {
  OverlapKind kind = OverlapKind::gather;
  std::string a, b, out;
  char part = 0;    // the dim that is gathered, scattered, or split among the ranks
  char joined = 0;  // exchanges: the dim along which what comes from the ranks is joined
  int operand = 0;  // gather, exchange: which one travels
  Axes axes;
  int ranks = 1;
  Overlap form = Overlap::automatic;  // as it is asked for

  const std::string& labels(int i) const { return i == 0 ? a : b; }
  bool moves_operand() const {
    return kind == OverlapKind::gather || kind == OverlapKind::exchange;
  }
  // The dim of the product of which a rank has a part at a time.
  char cut() const { return kind == OverlapKind::exchange ? joined : part; }
};

// The extents of an operand of the einsum, of the block that a device has of it.
Shape assembled(const OverlapSpec& spec, int operand, const Shape& block);
// The extent of each letter of the einsum.
std::int64_t extent_of(const OverlapSpec& spec, char label, const Shape& a, const Shape& b);
// A dim's place among labels; -1 where it is not there.
int place_of(const std::string& labels, char label);

// Primitives by kind. The program is that of the form taken.
extern Primitive all_gather_einsum_p, einsum_psum_scatter_p, all_to_all_einsum_p,
    einsum_all_to_all_p;
struct OverlapParams : CalledParamsOf<OverlapParams> {
  OverlapSpec spec;
  Overlap form = Overlap::ring;  // that of the program
  void visit(ParamVisitor& v) const override;
};

// The result under the current trace: ops at once, or one equation. Operands of one dtype; they are
// cast to vary alike.
Array run_overlapped(const OverlapSpec& spec, Array a, Array b, SourceLine source);
// The program of a form (ring or two_rings) for operands of these types, which vary alike.
JaxprRef overlapped_program(const OverlapSpec& spec, Overlap form, const ShapedArray& a,
                            const ShapedArray& b, SourceLine source);
// What it takes.
OverlapChoice choose_overlap(const OverlapSpec& spec, const ShapedArray& a, const ShapedArray& b);

// The ops of a form (not automatic) under the current trace (overlap_rings.cpp).
Array overlapped_ops(const OverlapSpec& spec, Overlap form, const Array& a, const Array& b,
                     SourceLine source);

const char* to_text(Overlap form);

// The rules (overlap_rules.cpp).
void jvp_overlapped(JvpCall& call);
void transpose_overlapped(TransposeCall& call);
void batch_overlapped(BatchCall& call);

}  // namespace shmap
