#include "cuda/kernels/launch.h"

#include <string>

#include "shmap/error.h"

namespace shmap::cuda {

void throw_launch_error(const char* kernel, int status) {
  cudaGetLastError();  // what is not sticky is not found again by the next call
  const auto error = static_cast<cudaError_t>(status);
  throw DeviceError(std::string("CUDA kernel ") + kernel + " could not be launched: " +
                    cudaGetErrorName(error) + " (" + cudaGetErrorString(error) +
                    "); after a device fault the process has to be started anew");
}

}  // namespace shmap::cuda
