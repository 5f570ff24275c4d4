// Host code that reads values once a stream has computed them.
#pragma once
#include <span>

#include "core/runtime/device_ops.h"

namespace shmap::cuda {

// Contract as in DeviceOps. Copies the values to page-locked memory in the stream; a host function
// of the stream passes them to the reader.
void read_on_host(std::span<const HostRead> values, const Ref<HostReader>& reader, void* native);

}  // namespace shmap::cuda
