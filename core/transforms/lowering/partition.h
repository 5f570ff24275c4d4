// Ops on sharded arrays outside a body: the primitive's sharding rule says how each device works on
// its own blocks. Elementwise ops keep the most-sharded operand's sharding; others follow their
// rule; without one, operands are gathered and the result is replicated. (jit applies the same
// rules when it traces.)
#pragma once
#include <vector>

#include "core/array/sharding.h"
#include "core/ir/primitive.h"

namespace shmap {

// How one op on global arrays runs on a mesh.
struct Partition {
  std::vector<const Sharding*>
      operands;  // what each operand has to be brought to; null for a literal
  std::vector<const Sharding*> results;
  std::unique_ptr<Params> local_params;  // null: the same
  // Axes over which the results are partial, by the kind of what makes them whole.
  std::vector<int> sum_axes, max_axes, min_axes;
};

// `given`: each operand's present sharding on `mesh`, null where it has none there.
Partition partition(const Primitive& primitive, Types in, Types out, const Params& params,
                    const std::vector<const Sharding*>& given, const detail::MeshImpl* mesh);

}  // namespace shmap
