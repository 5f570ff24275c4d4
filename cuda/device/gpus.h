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
  // Why there is none: "" where there are some.
  std::string why;
  bool too_old = false;  // the driver is there, but older than this build needs
};
// Asks the driver. (CUDA_DEVICE_MAX_CONNECTIONS=32 was set, where unset, while the library was
// loaded; where it was loaded beside running threads, the driver keeps its default.)
GpuCount count_gpus();
// The answer when this process first asked.
const GpuCount& present_gpus();

// "cuda" where a GPU answers, else "". Warns where the driver is too old.
const char* default_gpus();

// The GPUs that the devices of `spec` lie on, in order. Throws DeviceError: no driver, a driver
// that is too old, a GPU that is not there.
std::vector<int> chosen_gpus(const DeviceSpec& spec, const GpuCount& found);

// Lets each of them read and write the memory of each other where the machine can.
void enable_peer_access(std::span<const int> gpus);

// Makes the GPU the calling thread's current one, and puts back what was before; the thread has a
// context then, which calls of the driver want and a new thread lacks. Throws DeviceError.
class GpuScope {
 public:
  explicit GpuScope(int gpu);
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  int before_ = -1;  // -1: it was current already
};

// While this thread captures, the runtime refuses calls that a capture elsewhere could trip over,
// such as asking whether an event is done. This allows them, for code that touches nothing
// captured. Nothing where the thread does not capture.
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
