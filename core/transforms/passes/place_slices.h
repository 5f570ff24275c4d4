// Slices of arguments at places that the host knows become views.
#pragma once
#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// A dynamic_slice whose starts follow from literals and from devices' positions in the mesh, as of
// the rows that a step of a ring multiplies, becomes a placed_slice, where
// - the part is contiguous;
// - the array is an argument, whose memory the program holds anyway, and nothing may overwrite it:
// a
//   view would turn an update in place into a copy of the whole;
// - the part is not itself a result of the program, which would keep the argument alive.
// For meshes of one process, since others would have other parameters there.
JaxprRef place_slices(const Jaxpr& jaxpr, const detail::MeshImpl& mesh);

}  // namespace shmap
