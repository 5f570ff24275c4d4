#include "core/array/local_devices.h"

#include <string>

#include "core/array/sharding.h"
#include "core/ir/trace.h"

namespace shmap {

void want_local_devices(const detail::MeshImpl& mesh, std::string_view what, SourceLine source) {
  if (mesh.local_count() == 0) [[unlikely]]
    refuse_mesh_of_others(mesh, what, source);
}

void refuse_mesh_of_others(const detail::MeshImpl& mesh, std::string_view what, SourceLine source) {
  throw ValueError(std::string(what) + ": none of the devices of " + describe_mesh(mesh) +
                   " is this process's: only the processes that drive devices of a mesh run "
                   "functions over it, and read or save its arrays" +
                   at_line(source));
}

}  // namespace shmap
