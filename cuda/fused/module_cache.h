// Loads kernels that were compiled at run time on the GPUs that run them, once for each process and
// GPU.
#pragma once
#include <cstdint>
#include <string>

namespace shmap::cuda {

// A function of a loaded module, as a driver handle. It stays loaded until the process ends.
struct LoadedKernel {
  void* function = nullptr;
};

// The function `name` of `source`, on the calling thread's current GPU. The first call for a source
// compiles it; the first call for a source and a GPU loads it; both block. Any thread.
//
// The driver refuses to load code while a stream of the thread captures, and by default loads a
// module's functions at their first launch. This call loads them before it returns, and by calls
// that a capture of this thread allows (UncapturedCalls), so that a plan may be captured without an
// eager run before.
//
// DeviceError with the compiler's log where the source does not compile, and with the driver's
// message where it does not load.
LoadedKernel loaded_kernel(const std::string& source, const char* name);

// Enqueues the kernel on a cudaStream_t of the current GPU. The kernel's only parameter is a struct
// whose bytes are at `args`. waits: it begins with after_predecessor()
// (cuda/kernels/embedded/dependent_launch.h), and so may be launched before its predecessor ends.
void launch_loaded(LoadedKernel kernel, std::int64_t blocks, int threads, const void* args,
                   bool waits, void* native_stream);

}  // namespace shmap::cuda
