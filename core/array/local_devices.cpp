#include "core/array/local_devices.h"

#include <string>

#include "core/array/sharding.h"
#include "core/ir/trace.h"

namespace shmap {

void want_local_devices(const detail::MeshImpl& mesh, std::string_view what, SourceLine source) {
  if (mesh.local_count() != 0) [[likely]]
    return;
  throw ValueError(std::string(what) + ": none of the devices of " + describe_mesh(mesh) +
                   " is this process's: only the processes that drive devices of a mesh run "
                   "functions over it, and read or save its arrays" +
                   at_line(source));
}

}  // namespace shmap
