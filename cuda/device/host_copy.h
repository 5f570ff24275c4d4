// Copies between the host's memory and a GPU's, through page-locked memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/runtime/device_ops.h"

namespace shmap::cuda {

// Contracts as in DeviceOps: blocking, for memory that no pending work uses. A large copy is made
// in pieces: while the GPU moves one, the host copies the next. Any thread that does not capture.
// Throw DeviceError and OutOfMemory.
void host_to_device(void* dst, const void* src, std::int64_t bytes);
void device_to_host(void* dst, const void* src, std::int64_t bytes);

}  // namespace shmap::cuda
