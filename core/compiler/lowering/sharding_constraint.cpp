#include "core/compiler/lowering/sharding_constraint.h"

#include "core/array/local_devices.h"
#include "core/compiler/lowering/lower.h"
#include "core/compiler/lowering/reshard_blocks.h"
#include "core/ops/batch_rules.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"
#include "core/runtime/reshard.h"
#include "core/runtime/same_values.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

const ConstraintParams& constraint_of(const Params& params) {
  return params_as<ConstraintParams>(params);
}

// The name of the function that the user called, for errors.
template <bool is_put>
constexpr const char* kCalled = is_put ? "device_put" : "with_sharding_constraint";

template <bool is_put>
void eval_constraint(Types in, const Params& params, std::span<ShapedArray> out) {
  constraint_of(params).sharding->block_shape(in[0].dims(), kCalled<is_put>);
  out[0] = in[0];
}

// The array as a committed one: other operands move to its devices.
Array commit(Array x) {
  const StoredNode& node = *stored_of(x);
  return node.committed ? x : relabel(node, node.type, node.sharding, 0, true);
}

template <bool is_put>
void interpret_constraint(std::span<Array> in, const Params& params, std::span<Array> out,
                          SourceLine source) {
  out[0] = commit(reshard_array(in[0], constraint_of(params).sharding, kCalled<is_put>, source));
}

template <bool is_put>
void lower_constraint(LowerCall& call) {
  const Sharding* target = constraint_of(call.params).sharding;
  if (target->mesh() != call.lowering.mesh())
    throw_other_mesh(target->mesh(), call.lowering.mesh(), call.source);
  call.out[0] = call.lowering.reshard(call.in[0], target, kCalled<is_put>, call.source);
}

void jvp_constraint(JvpCall& call) {
  call.run();
  const StoredNode* primal = stored_of(call.primals[0]);
  const bool placed = primal && primal->trace == 0 && primal->committed;
  const ConstraintParams params(constraint_of(call.params).sharding,
                                placed ? primal->sharding : nullptr);
  call.tangents_out[0] = bind(call.primitive, call.tangents[0], params, call.source);
}

// A constraint on a value constrains its cotangent in the same way. A constraint that moved the
// value to another mesh is undone for the cotangent, because the cotangents of other uses are on
// the first mesh.
void transpose_constraint(TransposeCall& call) {
  const ConstraintParams& p = constraint_of(call.params);
  const bool back = p.from && p.from->mesh() != p.sharding->mesh();
  const ConstraintParams params(back ? p.from : p.sharding, back ? p.sharding : nullptr);
  call.out[0] = bind(call.primitive, call.cotangents[0], params, call.source);
}

// The new dim is not split.
void batch_constraint(BatchCall& call) {
  const Sharding* sharding = constraint_of(call.params).sharding;
  const auto dim = static_cast<std::size_t>(call.dims[0]);
  std::vector<PartitionSpec::Entry> entries = sharding->spec().entries();
  if (dim < entries.size())
    entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(dim), none);
  const ConstraintParams params(sharding->mesh()->sharding(PartitionSpec(std::move(entries))));
  give(call, call.in[0], params, call.dims[0]);
}

template <bool is_put>
constexpr Primitive constraint(const char* name) {
  Primitive p;
  p.name = name;
  p.abstract_eval = eval_constraint<is_put>;
  p.interpret = interpret_constraint<is_put>;
  p.lower = lower_constraint<is_put>;
  p.jvp = Rule<JvpFn>(jvp_constraint);
  p.transpose = Rule<TransposeFn>(transpose_constraint);
  p.batching = Rule<BatchFn>(batch_constraint);
  return p;
}

}  // namespace

constinit Primitive sharding_constraint_p = constraint<false>("sharding_constraint");
constinit Primitive device_put_p = constraint<true>("device_put");

void ConstraintParams::visit(ParamVisitor& v) const {
  v.value("sharding", std::string_view(to_string(sharding->spec())));
}

void register_sharding_constraint() {
  register_primitive(sharding_constraint_p);
  register_primitive(device_put_p);
}

namespace {

void want_outside(const char* what, const std::string& where, SourceLine source) {
  if (!current_trace().axis_env()) return;
  throw ValueError(std::string(what) + ": to " + where +
                   " inside a shard_map body, whose values are blocks on the devices of its mesh: "
                   "place the array before the call, or say where arguments go by in_specs" +
                   at_line(source));
}

// An equation in traced programs and under transforms; otherwise the array moves at once.
Array place(Array x, const Sharding* target, SourceLine source) {
  checked_node(x, "device_put", source);
  const Trace& trace = current_trace();
  if (trace.staged() || trace.transforms())
    return bind(device_put_p, std::move(x), ConstraintParams(target), source);
  return at_source("device_put", source, [&] {
    Array placed = commit(reshard(x, target, "device_put", source));
    // Not before: a call that finds no memory may be repeated, and the reports of the processes are
    // compared in their order.
    compare_placed(x, *target, source);
    return placed;
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
  want_local_devices(*stored.mesh, "process_allgather", {});
  Array whole = reshard(x, stored.mesh->replicated(), "process_allgather");
  const StoredNode& all = *stored_of(whole);
  if (all.mesh->fully_addressable()) return whole;
  // This process's copy of the whole array, as an array on one device.
  const detail::MeshImpl* one = detail::MeshImpl::single(all.mesh->local(0).device);
  StoredNode* copy = StoredNode::make(all.type, one, 1);
  Array here = Array::of(copy);
  copy->sharding = one->replicated();
  copy->origin = all.origin;
  copy->blocks()[0] = all.blocks()[0];
  return here;
}

}  // namespace shmap
