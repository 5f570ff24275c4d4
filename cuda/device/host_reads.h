// Host code that looks at values when a stream has computed them.
#pragma once
#include <span>

#include "core/runtime/device_ops.h"

namespace shmap::cuda {

// As DeviceOps has it. The values are copied to page-locked memory in the stream, and a host
// function of the stream shows them to the reader.
void read_on_host(std::span<const HostRead> values, const Ref<HostReader>& reader, void* native);

}  // namespace shmap::cuda
