#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/transforms/lowering/sharding_constraint.h"
#include "shmap/jit.h"

namespace shmap::detail {

Array constrain_sharding(const Array& x, const NamedSharding& sharding, SourceLine source) {
  checked_node(x, "with_sharding_constraint", source);
  if (current_trace().axis_env() != nullptr) {
    throw ValueError(
        "with_sharding_constraint: called in the body of a shard_map, where arrays are blocks and "
        "have no sharding: call it outside of the body" +
        at_line(source));
  }
  const Sharding* target = sharding.mesh().impl()->sharding(sharding.spec());
  return bind(sharding_constraint_p, x, ConstraintParams(target), source);
}

}  // namespace shmap::detail
