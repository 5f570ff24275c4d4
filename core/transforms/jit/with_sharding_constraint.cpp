#include "core/array/sharding.h"
#include "core/compiler/lowering/automatic_axes.h"
#include "core/compiler/lowering/sharding_constraint.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "shmap/jit.h"

namespace shmap::detail {

namespace {

// The axes of the mesh that the environment has, too.
std::uint32_t axes_named(const AxisEnv& env, const MeshImpl& mesh) {
  std::uint32_t mask = 0;
  for (const std::string& name : env.names)
    if (const int axis = mesh.env()->find(name); axis >= 0) mask |= 1u << axis;
  return mask;
}

}  // namespace

Array constrain_sharding(const Array& x, const NamedSharding& sharding, SourceLine source) {
  checked_node(x, "with_sharding_constraint", source);
  const detail::MeshImpl& mesh = *sharding.mesh().impl();
  const Sharding* target = mesh.sharding(sharding.spec());
  if (const AxisEnv* body = current_trace().axis_env()) {
    const std::uint32_t manual = axes_named(*body, mesh);
    if (manual == all_axes(mesh) || (target->mentioned() & manual) != 0) {
      throw ValueError(
          "with_sharding_constraint: " + to_string(sharding.spec()) +
          " in the body of a shard_map over " + describe_axes(*body) +
          ", where arrays are blocks along these axes and have no sharding over them: " +
          (manual == all_axes(mesh) ? "call it outside of the body"
                                    : "name only axes that the shard_map leaves automatic") +
          at_line(source));
    }
  }
  return bind(sharding_constraint_p, x, ConstraintParams(target), source);
}

}  // namespace shmap::detail
