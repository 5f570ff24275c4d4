// Slices of arguments at places that the host knows become views.
#pragma once
#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// A dynamic_slice whose starts follow from literals and from devices' positions in the mesh, as of
// the rows that a step of a ring multiplies, becomes a placed_slice. The part has to be contiguous,
// and may not itself be a result of the program, since it would keep the argument alive. The array
// has to be an argument, whose memory the program holds anyway, and nothing may overwrite it, since
// a view would turn an update in place into a copy of the whole. Only meshes of one process: in
// others the parameters would differ between processes.
JaxprRef place_slices(const Jaxpr& jaxpr, const detail::MeshImpl& mesh);

}  // namespace shmap
