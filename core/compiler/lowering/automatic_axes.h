// Bodies that are mapped over some axes of their mesh (axis_names of jax.shard_map). These axes are
// manual: along them a value is one device's block, and the body writes their collectives. The
// other axes are automatic: along them a value is a whole array that lies as its sharding says, and
// each operation runs by its sharding rule (partition.h), as operations on global arrays do.
#pragma once
#include <cstdint>

#include "core/array/sharding.h"
#include "core/ir/primitive.h"
#include "shmap/array.h"

namespace shmap {

// The mask of all axes of the mesh.
std::uint32_t all_axes(const detail::MeshImpl& mesh);
// The environment of a body in which these axes are manual. The types of its values name no others.
const detail::AxisEnv* env_of(const detail::MeshImpl& mesh, std::uint32_t axes);

// The sharding without the axes that are not in the mask.
const Sharding* part_over(const Sharding* sharding, std::uint32_t axes);
// The sharding of a global array whose blocks under `manual`, of shape `block`, are split as
// `automatic` says. The two name different axes. The automatic axes of a dim of the blocks that
// they do not divide are left out.
const Sharding* joined(const Sharding* manual, const Sharding* automatic, const Shape& block);

// Runs an operation on arrays that are split over `mesh`: concrete ones, or values of a body with
// automatic axes. Reshards the operands as the primitive's sharding rule wants them; see
// partition.h. in, in_types: the operands, which are consumed, and their types; operands of other
// meshes are moved. out_types: the results' types. trace: the id of the trace that gets the
// results, 0 for none.
void run_by_rule(const Primitive& primitive, std::span<Array> in, Types in_types,
                 const Params& params, std::span<Array> out, Types out_types,
                 const detail::MeshImpl* mesh, std::uint64_t trace, SourceLine source);

// A value of a body as an array that is whole along the automatic axes; other arrays unchanged.
Array whole_in_body(const Array& x, SourceLine source = {});

}  // namespace shmap
