#include "core/compiler/lowering/per_device.h"

#include <set>

#include "core/array/local_devices.h"
#include "core/array/sharding.h"
#include "core/base/counters.h"
#include "core/base/inline_vector.h"
#include "core/compiler/lowering/automatic_axes.h"
#include "core/compiler/lowering/reshard_blocks.h"
#include "core/ir/divergence.h"
#include "core/runtime/op_site.h"
#include "core/runtime/reshard.h"
#include "core/runtime/same_values.h"
#include "core/runtime/step.h"

namespace shmap {

std::string other_devices(const std::string& what, const Array& x, const detail::MeshImpl* mesh,
                          const char* function) {
  const Array* value = &primal_of(x);
  while (node_of(*value) && node_of(*value)->kind == NodeKind::batched)
    value = &primal_of(static_cast<const BatchedNode*>(node_of(*value))->values);
  const StoredNode* stored = stored_of(*value);
  if (!stored || stored->trace != 0 || !stored->committed || stored->mesh == mesh ||
      stored->mesh->is_single())
    return {};
  std::set<int> theirs, ours;
  for (const Device& d : stored->mesh->devices().values()) theirs.insert(d.id());
  for (const Device& d : mesh->devices().values()) ours.insert(d.id());
  if (theirs == ours) return {};
  return what + " of type " + to_string(node_of(x)->type) + " is placed on " +
         describe_mesh(*stored->mesh) + ", and " + function + " " + describe_mesh(*mesh) + " (" +
         mesh_difference(*stored->mesh, *mesh) +
         "): bring the array there with device_put(x, NamedSharding(mesh, spec))";
}

PerDeviceTrace::PerDeviceTrace(const detail::MeshImpl* mesh, PerDeviceOptions options,
                               SourceLine made)
    : Trace("shard_map", made), mesh_(mesh), options_(options), env_(mesh->env()) {
  want_local_devices(*mesh, "shard_map", made);
}

PerDeviceTrace::PerDeviceTrace(const detail::MeshImpl* mesh, PerDeviceOptions options,
                               std::uint32_t manual, const PerDeviceTrace* outer, SourceLine made)
    : PerDeviceTrace(mesh, options, made) {
  automatic_ = all_axes(*mesh) & ~manual;
  if (automatic_ != 0) env_ = env_of(*mesh, manual);
  outer_ = outer;
}

bool PerDeviceTrace::is_around(const Node& node) const {
  const PerDeviceTrace* body = outer_;
  while (body != nullptr && body->id() != node.trace) body = body->outer_;
  return body != nullptr;
}

Array PerDeviceTrace::enter(const Array& x, const Sharding* sharding, const std::string& what,
                            SourceLine source) {
  if (const std::string problem = other_devices(what, x, mesh_); !problem.empty())
    throw ValueError("shard_map: " + problem + at_line(source));
  const StoredNode* given = stored_of(x);
  const Sharding *target = sharding, *automatic = nullptr;
  if (automatic_ != 0) {
    automatic = mesh_->replicated();
    if (given && given->mesh == mesh_) {
      target = joined(sharding, part_over(given->sharding, automatic_),
                      sharding->block_shape(given->type.dims(), what));
      automatic = part_over(target, automatic_);
    }
  }
  const Array placed = reshard_array(x, target, what, source);
  const StoredNode& node = *stored_of(placed);
  Array entered = relabel(node, block_type(node.type, sharding, what), automatic, id(), true);
  node_of(entered)->origin.op = kArgument;
  return entered;
}

Array PerDeviceTrace::close_over(const Array& x, SourceLine source) {
  const auto it = closed_.find(x.node());
  if (it != closed_.end()) return it->second.block;
  if (!mesh_->fully_addressable()) {
    compare_entering(x, *mesh_->replicated(),
                     "closed-over value " + std::to_string(closed_.size()) + " of a body", source);
  }
  Array block = enter(x, mesh_->replicated(), "a value that the body closes over", source);
  node_of(block)->origin.op = kCaptured;
  closed_.emplace(x.node(), Closed{x, block});
  return block;
}

void PerDeviceTrace::admit(std::span<Array> in, const char* what, SourceLine source) {
  for (Array& x : in) {
    const Node& node = checked_node(x, what, source);
    if (node.trace == id() || node.kind == NodeKind::literal) continue;
    if (node.kind != NodeKind::stored || (node.trace != 0 && !is_around(node)))
      throw_escaped(node, what, source);
    x = close_over(x, source);
  }
}

void PerDeviceTrace::process(const Primitive& primitive, std::span<Array> in, const Params& params,
                             std::span<Array> out, SourceLine source) {
  admit(in, primitive.name, source);
  if (primitive.interpret) return primitive.interpret(in, params, out, source);
  InlineVector<ShapedArray, 4> in_types(in.size());
  InlineVector<ShapedArray, 2> out_types(out.size());
  for (std::size_t i = 0; i < in.size(); ++i) in_types[i] = node_of(in[i])->type;
  if (options_.check_variance && !casts() && !primitive.group)
    require_equal_variance(primitive.name, in, source);
  try {
    infer_types(primitive, in_types.span(), params, env_, out_types.span());
  } catch (const ValueError& e) {
    throw ValueError(e.what() + captured_text(in) + at_line(source));
  } catch (const TypeError& e) {
    throw TypeError(e.what() + at_line(source));
  }

  if (automatic_ != 0) {
    return run_by_rule(primitive, in, in_types.span(), params, out, out_types.span(), mesh_, id(),
                       source);
  }
  InlineVector<StoredNode*, 2> results(out.size());
  for (std::size_t o = 0; o < out.size(); ++o) {
    StoredNode* node = StoredNode::make(out_types[o], mesh_, mesh_->local_count());
    node->trace = id();
    node->committed = true;
    node->origin = {primitive.name, source};
    out[o] = Array::first(node);
    results[o] = node;
  }

  if (primitive.group) check_divergent_collective(primitive, params, source);
  // Computed once for each memory space and each coordinate of the axes over which the results vary
  // by their types.
  std::uint32_t varying = 0;
  for (std::size_t o = 0; o < out.size(); ++o)
    varying |= out_types[o].axes().mask_in(*mesh_->env());
  run_step({primitive, params, *mesh_, in, in_types.span(), varying, source}, out_types.span(),
           results.span());
}

}  // namespace shmap
