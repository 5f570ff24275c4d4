#include "shard_map/mapped.h"

#include "core/compiler/lowering/automatic_axes.h"
#include "core/compiler/lowering/per_device.h"
#include "core/compiler/lowering/reshard_blocks.h"
#include "core/runtime/repeatable_call.h"
#include "core/runtime/reshard.h"
#include "core/runtime/same_values.h"
#include "shard_map/primitive.h"

namespace shmap {

namespace {

// Alive while a body runs or is traced. The transforms between two nested bodies have no mesh of
// their own, so the inner call asks its thread for the outer body's mesh.
class BodyScope {
 public:
  explicit BodyScope(const detail::MeshImpl* mesh) : before_(mesh_) { mesh_ = mesh; }
  ~BodyScope() { mesh_ = before_; }
  BodyScope(const BodyScope&) = delete;
  BodyScope& operator=(const BodyScope&) = delete;
  static const detail::MeshImpl* mesh() { return mesh_; }

 private:
  static constinit thread_local const detail::MeshImpl* mesh_;
  const detail::MeshImpl* before_;
};
constinit thread_local const detail::MeshImpl* BodyScope::mesh_ = nullptr;

// A value of an eager body as a value of the trace around the body: the array that consists of its
// blocks. `own`: the axes that the body is mapped over; `outer`: the trace, 0 for the base trace.
Array leave_body(Array block, const Sharding* out, std::uint32_t own, std::uint64_t outer) {
  const StoredNode& node = *stored_of(block);
  const ShapedArray& t = node.type;
  const detail::MeshImpl* mesh = out->mesh();
  const bool split = node.trace != 0 && node.sharding != nullptr;
  const Sharding* sharding = split ? joined(out, node.sharding, t.dims()) : out;
  const ShapedArray type(out->global_shape(t.dims()), t.dtype(), t.weak(),
                         AxisSet(mesh->env(), t.axes().mask_in(*mesh->env()) & ~own));
  return relabel(std::move(block), type, sharding, outer, true);
}

}  // namespace

const detail::MeshImpl* mesh_of_body() { return BodyScope::mesh(); }

namespace {

std::vector<Array> run_once(MappedCall call) {
  const Trace& here = current_trace();
  const auto* outer = here.axis_env() ? dynamic_cast<const PerDeviceTrace*>(&here) : nullptr;
  const std::uint64_t around = outer ? outer->id() : 0;
  PerDeviceTrace trace(call.mesh, {call.options.check_vma, call.options.auto_pbroadcast},
                       call.axes.manual(), outer, call.lines.made);
  std::vector<Array> blocks;
  blocks.reserve(call.in.size());
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    // Each argument is released as it enters, so that the body can write to a donated argument in
    // place.
    const Array argument = std::move(call.in[i]);
    const Node& node = *node_of(argument);
    if (node.trace != 0 && node.trace != around)
      throw_escaped(node, "shard_map: an argument", call.source);
    if (!call.mesh->fully_addressable()) {
      compare_entering(argument, *call.in_shardings[i],
                       "args[" + std::to_string(i) + "] of shard_map", call.source);
    }
    const std::string name = i < call.names.size() ? call.names[i] : "an argument";
    blocks.push_back(trace.enter(argument, call.in_shardings[i], name, call.source));
  }
  std::vector<Array> results;
  {
    const TraceScope scope(trace);
    const BodyScope body(call.mesh);
    results = call.body(std::move(blocks));
  }
  trace.admit(results, "the result of a shard_map body", call.source);
  std::vector<ShapedArray> types;
  for (Array& x : results) {
    x = as_stored(std::move(x), call.mesh);
    types.push_back(node_of(x)->type);
  }
  const std::vector<const Sharding*> out = call.out_shardings(types);
  for (std::size_t o = 0; o < results.size(); ++o)
    results[o] = leave_body(std::move(results[o]), out[o], call.axes.own, around);
  return results;
}

// Traces the body, and stages an equation with its program.
std::vector<Array> stage_mapped(MappedCall call) {
  ShardMapParams params;
  params.over = call.mesh;
  params.axes = call.axes;
  params.options = call.options;
  params.lines = call.lines;
  StagingOptions staging;
  staging.check_variance = call.options.check_vma;
  staging.auto_pbroadcast = call.options.auto_pbroadcast;
  JaxprTrace trace("shard_map", env_of(*call.mesh, call.axes.manual()), staging, call.lines.made);
  std::vector<Array> blocks;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    blocks.push_back(
        trace.argument(block_type(node_of(call.in[i])->type, call.in_shardings[i], "an argument")));
  }
  Traced traced;
  {
    const TraceScope scope(trace);
    const BodyScope body(call.mesh);
    std::vector<Array> results = call.body(std::move(blocks));
    std::vector<ShapedArray> types;
    for (Array& x : results) {
      x = trace.lift(x, "the result of a shard_map body", call.source);
      types.push_back(node_of(x)->type);
    }
    params.out = call.out_shardings(types);
    traced = trace.build(results, "the result of a shard_map body", call.source);
  }
  // Values that the body captures become operands with the spec P().
  params.in.assign(traced.consts.size(), call.mesh->replicated());
  params.in.insert(params.in.end(), call.in_shardings.begin(), call.in_shardings.end());
  if (call.names.size() == call.in.size()) {
    params.names.assign(traced.consts.size(), "a value that the body closes over");
    params.names.insert(params.names.end(), call.names.begin(), call.names.end());
  }
  params.jaxpr = std::move(traced.jaxpr);
  std::vector<Array> operands = std::move(traced.consts);
  for (Array& x : call.in) operands.push_back(std::move(x));
  return bind_all(shard_map_p, operands, params, call.source);
}

}  // namespace

std::vector<Array> run_mapped(MappedCall call) {
  return run_repeatable([&] { return run_once(std::move(call)); });
}

std::vector<Array> map_over(MappedCall call) {
  Trace& trace = current_trace();
  if (auto* duals = dynamic_cast<JvpTrace*>(&trace)) {
    std::vector<Array> tangents;
    for (Array& x : call.in) {
      auto [primal, tangent] = duals->split(x);
      x = std::move(primal);
      tangents.push_back(std::move(tangent));
    }
    const SourceLine source = call.source;
    const JvpTrace::Place at = duals->place(call.in, tangents);
    Duals out = differentiate_mapped(std::move(call), tangents, at.linear, at.parent, duals->tag());
    for (std::size_t o = 0; o < out.primals.size(); ++o)
      out.primals[o] =
          duals->dual(std::move(out.primals[o]), std::move(out.tangents[o]), "shard_map", source);
    return std::move(out.primals);
  }
  if (auto* batch = dynamic_cast<BatchTrace*>(&trace)) {
    std::vector<int> dims;
    for (Array& x : call.in) {
      auto [values, dim] = batch->split(x);
      x = std::move(values);
      dims.push_back(dim);
    }
    Batch out = batch_mapped(std::move(call), dims, batch->size(), batch->parent(), batch->tag());
    for (std::size_t o = 0; o < out.values.size(); ++o)
      out.values[o] = batch->wrap(std::move(out.values[o]), out.dims[o]);
    return std::move(out.values);
  }
  return trace.staged() ? stage_mapped(std::move(call)) : run_mapped(std::move(call));
}

const Sharding* sharding_by_variance(const MappedCall& call, const ShapedArray& block) {
  const detail::AxisEnv* env = call.mesh->env();
  const AxisSet axes(env, block.axes().mask_in(*env) & call.axes.own);
  if (axes.empty()) return call.mesh->replicated();
  return call.mesh->sharding(PartitionSpec(PartitionSpec::Entry(Axes(axes.names()))));
}

}  // namespace shmap
