// The kinds of devices: one row for each kind, with what code outside of a backend's own folder has
// to know about the kind. A new backend adds an enumerator to DeviceKind and a row here.
#pragma once
#include <cstdint>
#include <iterator>

#include "shmap/device.h"

namespace shmap {

struct DeviceKindRow {
  DeviceKind kind;
  const char* spelled;     // in SHMAP_DEVICES and in messages
  const char* class_name;  // of a printed Device
  const char* drawn;       // in pictures of shardings
  // Whether the host can access the memory of the devices, and the devices' kernels can access the
  // memory of the host.
  bool host_memory;
  // Whether SHMAP_DEVICES chooses devices by their numbers ("cuda:0,1"); otherwise it says how many
  // there are ("cpu:8").
  bool by_number;
  // DLDeviceTypes: of the devices' memory, and of other memory that the devices can read like their
  // own.
  std::int32_t dlpack, dlpack_too;
};

// In the order of the enumerators.
inline constexpr DeviceKindRow kDeviceKindRows[] = {
    {DeviceKind::cpu, "cpu", "CpuDevice", "CPU", true, false, 1, 3},     // kDLCPU, kDLCUDAHost
    {DeviceKind::cuda, "cuda", "CudaDevice", "GPU", false, true, 2, 13}  // kDLCUDA, kDLCUDAManaged
};
inline constexpr int kDeviceKinds = static_cast<int>(std::size(kDeviceKindRows));

constexpr const DeviceKindRow& row_of(DeviceKind kind) {
  return kDeviceKindRows[static_cast<int>(kind)];
}
static_assert([] {
  for (int k = 0; k < kDeviceKinds; ++k)
    if (static_cast<int>(kDeviceKindRows[k].kind) != k) return false;
  return true;
}());

// The kind whose kernels run on the host: every build has it.
inline constexpr DeviceKind kHostKind = DeviceKind::cpu;

}  // namespace shmap
