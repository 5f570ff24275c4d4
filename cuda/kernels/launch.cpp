#include "cuda/kernels/launch.h"

#include "cuda/driver/error.h"

namespace shmap::cuda {

void throw_launch_error(const char* what, int status) {
  throw_cuda_error(static_cast<cudaError_t>(status), what);
}

}  // namespace shmap::cuda
