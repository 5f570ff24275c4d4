// Turns errors of the CUDA runtime into errors of the library.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

namespace shmap::cuda {

// Throws OutOfMemory where memory was short, else DeviceError. The text has the call, the GPU, the
// task that this thread runs, CUDA's description, and a remedy. Where the error means that the
// GPU's state is lost, the backends of this process are poisoned (cuda/driver/health.h).
[[noreturn]] void throw_cuda_error(cudaError_t code, const char* call);

inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) [[unlikely]]
    throw_cuda_error(code, call);
}

// True if every later call of this process that uses this GPU will fail.
bool is_sticky(cudaError_t code) noexcept;
// True if the process is exiting and the CUDA runtime is already unloaded.
bool is_unloading(cudaError_t code) noexcept;

// "an illegal memory access was encountered (cudaErrorIllegalAddress)"
std::string describe(cudaError_t code);

// For destructors and polls: records a lost GPU, and ignores other errors.
void note(cudaError_t code) noexcept;

}  // namespace shmap::cuda
