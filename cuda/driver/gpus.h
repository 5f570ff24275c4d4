// The GPUs that this process can use.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/device/spec.h"

namespace shmap::cuda {

struct GpuCount {
  int gpus = 0;
  // why there are no GPUs; "" where there are some
  std::string why;
  bool too_old = false;  // the driver exists, but is older than this build requires
};
// Asks the driver. (While the library was loaded, CUDA_DEVICE_MAX_CONNECTIONS was set to 32 if it
// was unset; if other threads were already running, the driver keeps its default.)
GpuCount count_gpus();
// The result of the first count in this process.
const GpuCount& present_gpus();

// "cuda" if there is a usable GPU, else "". Warns if the driver is too old.
const char* default_gpus();

// The GPUs of the devices of `spec`, in order. Throws DeviceError: no driver, a driver that is too
// old, a GPU that does not exist.
std::vector<int> chosen_gpus(const DeviceSpec& spec, const GpuCount& found);

// Lets these GPUs access each other's memory where the system can.
void enable_peer_access(std::span<const int> gpus);
// Whether enable_peer_access() has let `gpu` access the memory of `other`.
bool reaches(int gpu, int other);

// How many devices of the process's backend a GPU has, virtual devices being several: 1 unless it
// was told otherwise. Any thread.
void share_gpu(int gpu, int devices);
int devices_sharing(int gpu);

// The GPU of an address of device memory. Any thread; creates no context. Throws DeviceError.
int gpu_of(const void* device_memory);

// Makes the GPU the calling thread's current one, and restores the previous one if this process
// uses that: to make a GPU current gives the process a context there, hundreds of MB of the GPU's
// memory. The thread then has a context, which driver calls need and a new thread lacks. Throws
// DeviceError.
class GpuScope {
 public:
  explicit GpuScope(int gpu);
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  int before_ = -1;  // -1: the GPU was current already
};

// For code that asks about events, of any GPU, without a GpuScope: gives the calling thread a
// context on this GPU if it has none at all. (Even its cudaEventQuery would otherwise create one on
// GPU 0.)
void ensure_context(int gpu) noexcept;

// cudaFree, for memory of that GPU; does nothing where the GPU is lost. (On a thread that never
// chose a GPU, cudaFree itself would create a context on GPU 0.)
void free_memory(int gpu, void* data) noexcept;

// While this thread captures, the runtime refuses calls that could disturb captures elsewhere, such
// as queries of events. This scope allows them, for code that does not use anything captured.
// Without effect where the thread does not capture.
class UncapturedCalls {
 public:
  UncapturedCalls() noexcept;
  ~UncapturedCalls();
  UncapturedCalls(const UncapturedCalls&) = delete;
  UncapturedCalls& operator=(const UncapturedCalls&) = delete;

 private:
  bool changed_ = false;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace shmap::cuda
