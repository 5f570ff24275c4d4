// What the rules of the transforms are handed, and give: one equation, seen by JVP, transposition
// or batching. Rules are written in ops that they bind, so they are traced, differentiated and
// mapped as any other code. An empty Array stands for a symbolic zero: an unused output costs
// nothing.
#pragma once
#include <cstdint>
#include <span>

#include "core/base/inline_vector.h"
#include "core/ir/node.h"
#include "core/ir/primitive.h"
#include "core/ir/trace.h"

namespace shmap {

class JaxprTrace;

// JVP (autodidax's jvp_rules). Ops on primals alone run where the primals live; one that has a
// tangent operand is part of the linear program, where linearize is at work: so each has to be
// linear in the tangents.
struct JvpCall {
  const Primitive& primitive;
  const Params& params;
  std::span<const Array> primals;
  std::span<const Array> tangents;  // of the type of its primal, or empty: zero. One is not.
  std::span<Array> out;             // to be given: the results
  std::span<Array> tangents_out;    // theirs; empty (as they come): zero
  SourceLine source;
  // The linear program that is being built; null where tangents are computed beside the primals.
  // Of use to primitives that hold programs; and the trace of the primals.
  JaxprTrace* linear;
  Trace& parent;

  bool has_tangent(std::size_t i) const { return tangents[i].node() != nullptr; }
  const ShapedArray& type(std::size_t i) const { return node_of(primals[i])->type; }
  // The results, computed as without differentiation.
  void run() const {
    InlineVector<Array, 4> in(primals.size());
    for (std::size_t i = 0; i < primals.size(); ++i) in[i] = primals[i];
    current_trace().process(primitive, in, params, out, source);
  }
};

// Transposition of an equation that is linear in some of its operands (autodidax's
// transpose_rules): from the cotangents of its results to those of the operands, which have the
// operands' types, variance too.
struct TransposeCall {
  const Primitive& primitive;
  const Params& params;
  std::span<const Array> in;          // the operands that are known; empty: linear
  Types in_types;                     // of all operands
  Types out_types;                    // of all results
  std::span<const Array> cotangents;  // of the results; empty: zero. One is not.
  std::span<Array> out;               // to be given: of linear operands; empty: zero
  SourceLine source;

  bool is_linear(std::size_t i) const { return in[i].node() == nullptr; }
};

// Batching (jax.interpreters.batching): an equation of values of which some are many, `size` of
// them along a dim. The result may have the dim anywhere.
struct BatchCall {
  const Primitive& primitive;
  const Params& params;
  std::span<const Array> in;
  std::span<const int> dims;  // where the many lie in each operand; -1: it is one. One is not.
  std::int64_t size;
  std::span<Array> out;     // to be given
  std::span<int> out_dims;  // likewise; -1: the results are one
  SourceLine source;

  bool is_batched(std::size_t i) const { return dims[i] >= 0; }
};

}  // namespace shmap
