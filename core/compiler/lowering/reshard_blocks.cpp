#include "core/compiler/lowering/reshard_blocks.h"

#include <algorithm>

#include "collectives/block_collectives.h"
#include "core/array/local_devices.h"
#include "core/compiler/lowering/per_device.h"
#include "core/ir/node.h"
#include "core/runtime/repeatable_call.h"
#include "core/runtime/reshard.h"

namespace shmap {

namespace {

// The mesh axes that split each dim.
std::vector<std::vector<int>> axes_by_dim(const Sharding* s, std::size_t rank) {
  std::vector<std::vector<int>> dims = s->dims();
  dims.resize(rank);
  return dims;
}

std::size_t common_prefix(const std::vector<int>& a, const std::vector<int>& b) {
  std::size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

// The elements of `list` after the first n.
std::vector<int> tail(const std::vector<int>& list, std::size_t n) {
  return {list.begin() + static_cast<std::ptrdiff_t>(n), list.end()};
}

}  // namespace

Array reshard(const Array& x, const Sharding* target, const std::string& what, SourceLine source) {
  if (!has_blocks_elsewhere(x, target)) return reshard_by_copies(x, target, what, source);
  const detail::MeshImpl* mesh = stored_of(x)->mesh;
  if (mesh == target->mesh()) return reshard_array(x, target, what, source);
  // Gathers the array first, so that every process of the old mesh has the whole.
  return reshard(reshard_array(x, mesh->replicated(), what, source), target, what, source);
}

ShapedArray block_type(const ShapedArray& array, const Sharding* sharding,
                       const std::string& what) {
  const detail::AxisEnv* env = sharding->mesh()->env();
  return ShapedArray(sharding->block_shape(array.dims(), what), array.dtype(), array.weak(),
                     AxisSet(env, sharding->mentioned() | array.axes().mask_in(*env)));
}

Array reshard_block(Array block, const Sharding* from, const Sharding* to, std::size_t rank,
                    SourceLine source) {
  std::vector<std::vector<int>> now = axes_by_dim(from, rank);
  const std::vector<std::vector<int>> wanted = axes_by_dim(to, rank);
  for (std::size_t d = 0; d < rank; ++d) {
    const std::size_t kept = common_prefix(now[d], wanted[d]);
    if (kept != wanted[d].size() || kept == now[d].size()) continue;
    const std::vector<int> leaving = tail(now[d], kept);
    for (std::size_t e = 0; e < rank; ++e) {
      if (e == d || common_prefix(now[e], wanted[e]) != now[e].size() ||
          tail(wanted[e], now[e].size()) != leaving)
        continue;
      block = exchange_block(block, leaving, static_cast<int>(e), static_cast<int>(d), source);
      now[d] = wanted[d];
      now[e] = wanted[e];
      break;
    }
  }
  for (std::size_t d = 0; d < rank; ++d) {
    const std::size_t kept = common_prefix(now[d], wanted[d]);
    if (kept == now[d].size()) continue;
    block = gather_block(block, tail(now[d], kept), static_cast<int>(d), source);
    now[d].resize(kept);
  }
  for (std::size_t d = 0; d < rank; ++d) {
    if (now[d] == wanted[d]) continue;
    block = scatter_block(block, tail(wanted[d], now[d].size()), static_cast<int>(d), source);
  }
  return block;
}

Array reshard_array(const Array& x, const Sharding* target, const std::string& what,
                    SourceLine source) {
  const StoredNode* node = node_of(x) ? stored_of(x) : nullptr;
  const detail::MeshImpl* mesh = target->mesh();
  if (node && node->trace != 0 && node->sharding == target) return x;
  if (!node || node->mesh != mesh || !node->sharding || mesh->is_single() ||
      node->sharding == target) {
    return reshard(x, target, what, source);
  }
  target->block_shape(node->type.dims(), what);
  want_local_devices(*mesh, what, source);
  PerDeviceTrace trace(mesh, {false, false});
  const ShapedArray& t = node->type;
  Array moved = relabel(*node, block_type(t, node->sharding, what), nullptr, trace.id(), true);
  run_repeatable([&] {
    TraceScope scope(trace);
    moved = reshard_block(std::move(moved), node->sharding, target, t.dims().size(), source);
  });
  return relabel(*stored_of(moved), t, target, node->trace, node->committed);
}

}  // namespace shmap
