#include "core/runtime/device_ops.h"

#include <string>

#include "core/device/device_kinds.h"
#include "core/ir/trace.h"
#include "shmap/error.h"

namespace shmap {

DeviceOps& device_ops(DeviceKind kind) {
  static DeviceOps tables[kDeviceKinds];
  return tables[static_cast<int>(kind)];
}

namespace {

// The names of the required entries that are null.
std::string missing_entries(const RequiredDeviceOps& ops) {
  const struct {
    const char* name;
    bool there;
  } entries[] = {
#define SHMAP_ENTRY(name) {#name, ops.name != nullptr},
      SHMAP_ENTRY(copy_box) SHMAP_ENTRY(combine) SHMAP_ENTRY(zero) SHMAP_ENTRY(copy)
          SHMAP_ENTRY(copy_streaming) SHMAP_ENTRY(host_to_device) SHMAP_ENTRY(device_to_host)
              SHMAP_ENTRY(read_on_host)
#undef SHMAP_ENTRY
  };
  static_assert(sizeof(RequiredDeviceOps) == std::size(entries) * sizeof(void (*)()),
                "each entry of RequiredDeviceOps is checked");
  std::string names;
  for (const auto& entry : entries)
    if (!entry.there) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

}  // namespace

void check_device_ops(std::span<const DeviceKind> kinds) {
  std::string missing;
  for (const DeviceKind kind : kinds) {
    const std::string names = missing_entries(device_ops(kind));
    if (!names.empty())
      missing += std::string("\n  the backend '") + row_of(kind).spelled + "': " + names;
  }
  if (missing.empty()) return;
  throw Error("a backend of this build lacks operations on raw memory:" + missing +
              "\nSet them in its table (device_ops) at registration");
}

void register_device_ops_check() { check_at_start(check_device_ops); }

}  // namespace shmap
