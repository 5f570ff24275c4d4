// Putting arrays on devices.
#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ops/shape_params.h"
#include "core/runtime/reshard.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"

namespace shmap {

namespace {

void want_outside(const char* what, const std::string& where, SourceLine source) {
  if (!current_trace().axis_env()) return;
  throw ValueError(std::string(what) + ": to " + where +
                   " inside a shard_map body, whose values are blocks on the devices of its mesh: "
                   "place the array before the call, or say where arguments go by in_specs" +
                   at_line(source));
}

Array place(Array x, const Sharding* target, SourceLine source) {
  return at_source(source, [&] {
    Array placed = reshard(x, target, "device_put", source);
    const StoredNode& node = *stored_of(placed);
    if (node.committed) return placed;
    return relabel(node, node.type, node.sharding, 0, true);
  });
}

}  // namespace

Array device_put(Array x, NamedSharding sharding, SourceLine source) {
  want_outside("device_put", to_string(sharding), source);
  return place(std::move(x), sharding.mesh().impl()->sharding(sharding.spec()), source);
}

Array device_put(Array x, Device device, SourceLine source) {
  want_outside("device_put", device.str(), source);
  return place(std::move(x), detail::MeshImpl::single(device)->replicated(), source);
}

Array process_allgather(const Array& x) {
  want_outside("process_allgather", "every process", {});
  const Node& node = checked_node(x, "process_allgather");
  if (node.kind == NodeKind::literal) return x;
  if (node.kind != NodeKind::stored || node.trace != 0)
    throw_escaped(node, "process_allgather", {});
  const auto& stored = static_cast<const StoredNode&>(node);
  return reshard(x, stored.mesh->replicated(), "process_allgather");
}

}  // namespace shmap
