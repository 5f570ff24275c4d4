// The backends of a build without GPUs.
#include "core/cpu/backend.h"
#include "core/device/registry.h"

namespace shmap {

std::span<const BackendFactory> built_in_backends() {
  static constexpr BackendFactory kBackends[] = {
      {DeviceKind::cpu, cpu::make_backend, [] { return "cpu:8"; }}};
  return kBackends;
}

}  // namespace shmap
