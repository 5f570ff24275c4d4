#include "core/array/same_meshes.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/array/sharding.h"
#include "core/base/hash_text.h"
#include "core/processes/exchanges.h"
#include "core/processes/processes.h"

namespace shmap {
namespace {

using MeshUse = Exchanges::MeshUse;

// Whether this process and others have devices of the mesh.
bool is_shared(const detail::MeshImpl& mesh) {
  return !mesh.fully_addressable() && mesh.local_count() != 0;
}

void report(const detail::MeshImpl& mesh, MeshUse use, std::string what) {
  const std::vector<Device>& devices = mesh.devices().values();
  std::vector<int> ids;
  int first = devices.front().process_index();
  for (const Device& device : devices) {
    ids.push_back(device.id());
    first = std::min(first, device.process_index());
  }
  std::ranges::sort(ids);
  HashText hash;
  for (const int id : ids) hash.add(static_cast<std::uint64_t>(id));
  Processes::joined()->exchanges().report_mesh({hash.value(), mesh.name(), std::move(what)}, use,
                                               first);
}

}  // namespace

void report_made(const detail::MeshImpl& mesh, SourceLine source) {
  if (!is_shared(mesh) || Processes::joined() == nullptr) return;
  static std::mutex mutex;
  static auto* known = new std::unordered_set<const detail::MeshImpl*>();
  std::lock_guard lock(mutex);
  if (!known->insert(&mesh).second) return;
  const std::string line = source.str();
  report(mesh, MeshUse::made, describe_mesh(mesh) + (line.empty() ? "" : ", made at " + line));
}

void report_begun(const detail::MeshImpl& mesh) {
  if (getpid() != gettid() || !is_shared(mesh) || Processes::joined() == nullptr) return;
  report(mesh, MeshUse::begun, "");
}

}  // namespace shmap
