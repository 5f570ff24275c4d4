#include "cuda/kernels/launch.h"

#include <string>

#include "shmap/error.h"

namespace shmap::cuda {

void throw_launch_error(const char* what, int status) {
  cudaGetLastError();  // what is not sticky is not found again by the next call
  const auto error = static_cast<cudaError_t>(status);
  throw DeviceError(
      std::string("CUDA: '") + what + "' could not be enqueued: " + cudaGetErrorName(error) + " (" +
      cudaGetErrorString(error) + "); after a device fault the process has to be started anew");
}

}  // namespace shmap::cuda
