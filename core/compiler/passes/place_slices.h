// Turns slices of arguments whose offsets the host knows into views.
#pragma once
#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// Replaces a dynamic_slice whose starts follow from literals and from devices' positions in the
// mesh, such as the slice of the rows that a step of a ring multiplies, by a placed_slice. The
// slice has to be contiguous, and may not be a result of the program, since it would keep the
// argument alive. The array has to be an argument, whose memory the program holds anyway, and
// nothing may overwrite it, since a view would turn an update in place into a copy of the whole.
// Only for meshes of one process: with several, the parameters would differ between processes.
JaxprRef place_slices(const Jaxpr& jaxpr, const detail::MeshImpl& mesh);

}  // namespace shmap
