// Constants of a program, copied from host memory.
#pragma once
#include <cstdint>

#include "core/device/backend.h"

namespace shmap {

// Fills a new buffer of the device's memory space from its first byte on: at once, or, for up to
// 4096 bytes on a device whose memory the host cannot address, by a task on its compute stream.
// Where this thread captures, such a task runs at each launch of the graph, because other values
// may use the memory in between. The bytes at `from` are copied during the call. The caller does
// not hold the submit mutex.
void write_constant(Backend& backend, const LocalDevice& device, Buffer& to, const void* from,
                    std::int64_t bytes);

}  // namespace shmap
