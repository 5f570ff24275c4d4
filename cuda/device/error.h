// What the CUDA runtime answers, turned into errors of the library.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

namespace shmap::cuda {

// Throws OutOfMemory where there was no memory, else DeviceError: the call, the GPU, the task that
// this thread runs, what CUDA says, and what may help. Where the error means that the GPU's state
// is lost, the backends of this process are poisoned (cuda/device/health.h).
[[noreturn]] void throw_cuda_error(cudaError_t code, const char* call);

inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) [[unlikely]]
    throw_cuda_error(code, call);
}

// True of errors after which every later call that touches this GPU fails, in this process.
bool is_sticky(cudaError_t code) noexcept;
// True where the process is leaving and the runtime has gone already.
bool is_unloading(cudaError_t code) noexcept;

// "an illegal memory access was encountered (cudaErrorIllegalAddress)"
std::string describe(cudaError_t code);

// For destructors and polls: takes note of a lost GPU, and forgets what is not sticky.
void note(cudaError_t code) noexcept;

}  // namespace shmap::cuda
