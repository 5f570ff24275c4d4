// want_local_devices: refuses what only the processes that drive devices of a mesh can do.
#pragma once
#include <string_view>

#include "core/array/mesh_impl.h"

namespace shmap {

// A ValueError of `what` where this process drives no device of the mesh. It would otherwise wait
// for processes that do not know of it, or read blocks that it does not have.
void want_local_devices(const detail::MeshImpl& mesh, std::string_view what, SourceLine source);

}  // namespace shmap
