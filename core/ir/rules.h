// The arguments and results of a primitive's rules for JVP, transposition and batching of one
// equation. Rules call operations, which are traced, differentiated and batched like any other
// code. An empty Array stands for a symbolic zero, so that an unused output costs nothing.
#pragma once
#include <cstdint>
#include <span>

#include "core/base/inline_vector.h"
#include "core/ir/node.h"
#include "core/ir/primitive.h"
#include "core/ir/trace.h"

namespace shmap {

class JaxprTrace;

// JVP (autodidax's jvp_rules). Operations whose operands are all primals run under the trace of the
// primals. Under linearize, an operation with a tangent operand becomes an equation of the linear
// program: every such operation must be linear in the tangents.
struct JvpCall {
  const Primitive& primitive;
  const Params& params;
  std::span<const Array> primals;
  std::span<const Array> tangents;  // with the type of the primal; empty: zero. Not all are empty.
  std::span<Array> out;             // to be set: the results
  std::span<Array> tangents_out;    // to be set: the results' tangents; leave empty for zero
  SourceLine source;
  // The linear program that is being built; null where tangents are computed beside the primals.
  // The rules of primitives whose parameters contain programs use `linear`. `parent`: the trace of
  // the primals.
  JaxprTrace* linear;
  Trace& parent;

  bool has_tangent(std::size_t i) const { return tangents[i].node() != nullptr; }
  const ShapedArray& type(std::size_t i) const { return node_of(primals[i])->type; }
  // Sets `out` by running the primitive on the primals.
  void run() const {
    InlineVector<Array, 4> in(primals.size());
    for (std::size_t i = 0; i < primals.size(); ++i) in[i] = primals[i];
    current_trace().process(primitive, in, params, out, source);
  }
};

// Transposition of an equation that is linear in some of its operands (autodidax's
// transpose_rules): from the cotangents of its results to the cotangents of these operands. A
// cotangent has the type of its operand, variance included.
struct TransposeCall {
  const Primitive& primitive;
  const Params& params;
  std::span<const Array> in;          // the operands; empty: the equation is linear in this one
  Types in_types;                     // of all operands
  Types out_types;                    // of all results
  std::span<const Array> cotangents;  // of the results; empty: zero. Not all are empty.
  std::span<Array> out;               // to be set for the linear operands; leave empty for zero
  SourceLine source;

  bool is_linear(std::size_t i) const { return in[i].node() == nullptr; }
};

// Batching (jax.interpreters.batching): an equation some of whose operands have a batch dimension
// of `size` examples. A result may have its batch dimension at any dim.
struct BatchCall {
  const Primitive& primitive;
  const Params& params;
  std::span<const Array> in;
  std::span<const int> dims;  // the batch dim of each operand; -1: none. Not all are -1.
  std::int64_t size;
  std::span<Array> out;     // to be set
  std::span<int> out_dims;  // to be set: the batch dim of each result; -1: none
  SourceLine source;

  bool is_batched(std::size_t i) const { return dims[i] >= 0; }
};

}  // namespace shmap
