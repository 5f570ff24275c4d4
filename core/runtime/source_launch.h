// Kernels that are given as source text: the function by which core/extend/cuda_source.h calls the
// backend that compiles them.
#pragma once
#include <cstdint>
#include <string>

namespace shmap {

// Compiles the source, once, and enqueues its function `kernel` on `stream`, on the calling
// thread's current GPU; `args` is the kernel's only parameter. Throws DeviceError with the
// compiler's messages.
using LaunchSourceFn = void (*)(const std::string& source, const char* kernel, std::int64_t blocks,
                                int threads, const void* args, void* stream);
// A backend's registration gives it. Null: this build has none.
void set_launch_source(LaunchSourceFn fn);
LaunchSourceFn launch_source();

}  // namespace shmap
