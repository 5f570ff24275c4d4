// The backends of this build.
#pragma once
#include <memory>
#include <span>

#include "core/device/backend.h"
#include "core/device/spec.h"

namespace shmap {

struct BackendFactory {
  DeviceKind kind;
  // Makes devices with the ids first_id, first_id + 1, … Throws DeviceError where the devices do
  // not exist.
  std::unique_ptr<Backend> (*make)(const DeviceSpec& spec, int first_id, int process_index);
  // The device string to use where the user gives none; "" where no such device answers.
  const char* (*default_devices)();
};

// In order of preference. A folder with a backend defines `BackendFactory <name>_backend()`; CMake
// writes the list of these functions.
std::span<const BackendFactory> built_in_backends();

}  // namespace shmap
