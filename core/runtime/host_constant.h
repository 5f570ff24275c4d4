// Values of the host that a program brings along.
#pragma once
#include <cstdint>

#include "core/device/backend.h"

namespace shmap {

// Fills a fresh buffer of the device's space, from its first byte on: at once, or, where this
// thread captures, by a task on the device's compute stream, each time that the graph is launched
// (its memory may be others' in between). The bytes are copied. The caller does not hold the submit
// mutex.
void write_constant(Backend& backend, const LocalDevice& device, Buffer& to, const void* from,
                    std::int64_t bytes);

}  // namespace shmap
