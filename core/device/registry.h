// The kinds of devices that this build has.
#pragma once
#include <memory>
#include <span>

#include "core/device/backend.h"
#include "core/device/spec.h"

namespace shmap {

struct BackendFactory {
  DeviceKind kind;
  // Devices get the ids first_id, first_id + 1, … Throws DeviceError where they are not there.
  std::unique_ptr<Backend> (*make)(const DeviceSpec& spec, int first_id, int process_index);
  // The devices that it would use where none are asked for; "" where none answers.
  const char* (*default_devices)();
};

// Those of this build, in order of preference. A folder with a backend defines
// `BackendFactory <name>_backend()`; the list of them is made by CMake.
std::span<const BackendFactory> built_in_backends();

}  // namespace shmap
