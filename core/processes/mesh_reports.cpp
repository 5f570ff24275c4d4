#include "core/processes/mesh_reports.h"

#include <fmt/format.h>

namespace shmap {

void MeshReports::made(int process, const ReportedMesh& mesh) {
  reports_[mesh.devices][process].try_emplace(mesh.space, Made{mesh.what});
}

std::string MeshReports::begun(int process, const ReportedMesh& mesh) {
  std::map<int, OfProcess>& processes = reports_[mesh.devices];
  OfProcess& own = processes[process];
  const auto it = own.find(mesh.space);
  if (it == own.end()) return "";
  it->second.begun = true;
  for (const auto& [other, theirs] : processes) {
    if (theirs.contains(mesh.space)) continue;
    for (const auto& [space, made] : theirs) {
      if (!made.begun || own.contains(space)) continue;
      return fmt::format(
          "the processes communicate on different meshes of the same devices: {} on {}, and {} on "
          "{}. Neither of them has made the other's mesh. Give a mesh the same axes, sizes and "
          "order of devices in all processes: look for a branch on process_index(), and for sizes, "
          "names or devices that come from arguments, files or the environment. Where both meshes "
          "are meant, all processes have to communicate on them in the same order",
          peers_.text(process), it->second.what, peers_.text(other), made.what);
    }
  }
  return "";
}

}  // namespace shmap
