// A function mapped over the blocks of a mesh, on its way down through the traces: each transform
// takes its values off and puts its own interpretation around the body, until the body runs on
// blocks or is staged (jax's bind of shard_map, with a callable in the place of a jaxpr).
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
  ShardMapOptions options;
  MappedLines lines;
  SourceLine source;
  std::vector<Array> in;  // global values
  std::vector<const Sharding*> in_shardings;
  std::vector<std::string> names;  // of `in`, for the errors of programs; or none
  // Blocks to blocks: called once, under the trace of the body. Moved-in blocks are its own.
  std::function<std::vector<Array>(std::vector<Array> blocks)> body;
  // The shardings of results that are of these types: called once, after the body. May throw.
  std::function<std::vector<const Sharding*>(std::span<const ShapedArray> types)> out_shardings;
};

// Runs or stages the call under the current trace; gives global values.
std::vector<Array> map_over(MappedCall call);

// The call's results, and their tangents, along the tangents of its operands (empty: zero).
// `parent`: the trace of the primals. `linear`: the linear program that gets the tangents' part, as
// an equation of its own whose other operands are the body's residuals, each under the spec that
// its variance implies. `tag`: of the trace around, whose values the body may close over.
Duals differentiate_mapped(MappedCall call, std::span<const Array> tangents, JaxprTrace* linear,
                           Trace& parent, std::uint64_t tag);

// The call's results, of which those of operands that are many along a dim of `dims` are many too.
// `size`: how many; `tag`: as above.
Batch batch_mapped(MappedCall call, std::span<const int> dims, std::int64_t size, Trace& parent,
                   std::uint64_t tag);

// The spec that a value's variance implies: blocks that differ are put together along dim 0.
const Sharding* sharding_by_variance(const detail::MeshImpl* mesh, const AxisSet& axes);

}  // namespace shmap
