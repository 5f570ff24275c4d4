// MappedCall: a call of a mapped function, which each trace passes to the trace below. A transform
// replaces its values among the operands by values of the trace below, and wraps the body in its
// own interpretation, until the body runs on blocks or is staged (jax's bind of shard_map, with a
// callable in place of a jaxpr).
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/array/sharding.h"
#include "core/transforms/autodiff/jvp.h"
#include "core/transforms/vmap/batch.h"
#include "shard_map/primitive.h"
#include "shmap/shard_map.h"

namespace shmap {

struct MappedCall {
  const detail::MeshImpl* mesh;
  MappedAxes axes;
  ShardMapOptions options;
  MappedLines lines;
  SourceLine source;
  std::vector<Array> in;  // global arrays; in a body with automatic axes, its values
  std::vector<const Sharding*> in_shardings;
  std::vector<std::string> names;  // of `in`, for error messages of programs; or empty
  // From blocks to blocks: called once, under the trace of the body. The body owns the blocks moved
  // into it.
  std::function<std::vector<Array>(std::vector<Array> blocks)> body;
  // The shardings of results with these types: called once, after the body. May throw.
  std::function<std::vector<const Sharding*>(std::span<const ShapedArray> types)> out_shardings;
};

// Runs or stages the call under the current trace; returns global arrays, or values of the body
// around the call.
std::vector<Array> map_over(MappedCall call);
// Runs the body now, operation by operation, under the base trace or in an eager body.
std::vector<Array> run_mapped(MappedCall call);

// The mesh of the innermost body that this thread runs or traces; null outside of all bodies. It is
// abstract where the function was mapped over an AbstractMesh.
const detail::MeshImpl* mesh_of_body();

// The results of the call, and their tangents along the tangents of its operands (empty: zero).
// `parent`: the trace of the primals. `linear`: the linear program, which gets an equation for the
// tangents; the other operands of this equation are the body's residuals, each with the spec that
// its variance implies. `tag`: the id of the surrounding trace, whose values the body may capture.
Duals differentiate_mapped(MappedCall call, std::span<const Array> tangents, JaxprTrace* linear,
                           Trace& parent, std::uint64_t tag);

// The results of the call with batched operands. dims: the batch dim of each operand, -1 for none;
// `size`: the number of examples; `tag`: as for differentiate_mapped.
Batch batch_mapped(MappedCall call, std::span<const int> dims, std::int64_t size, Trace& parent,
                   std::uint64_t tag);

// The spec that the variance of a value of the body implies: blocks that differ are concatenated
// along dim 0.
const Sharding* sharding_by_variance(const MappedCall& call, const ShapedArray& block);

}  // namespace shmap
