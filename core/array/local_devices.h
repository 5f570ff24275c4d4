// Refuses what only the processes that drive devices of a mesh can do.
#pragma once
#include <string_view>

#include "core/array/mesh_impl.h"

namespace shmap {

// Throws a ValueError that names `what` where this process drives no device of the mesh: it would
// otherwise wait for processes that do not know of its call, or read blocks that it does not have.
void want_local_devices(const detail::MeshImpl& mesh, std::string_view what, SourceLine source);
// Throws that error, for a mesh of which this process is known to drive no device.
[[noreturn]] void refuse_mesh_of_others(const detail::MeshImpl& mesh, std::string_view what,
                                        SourceLine source);

}  // namespace shmap
