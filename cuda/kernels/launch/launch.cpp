#include "cuda/kernels/launch/launch.h"

#include <string>

#include "cuda/driver/error.h"
#include "shmap/error.h"

namespace shmap::cuda {

void throw_launch_error(const char* what, int status) {
  throw_cuda_error(static_cast<cudaError_t>(status), what);
}

void throw_no_kernel(const char* kernel) {
  throw Error(std::string(kernel) + ": there is no CUDA kernel for elements of this dtype");
}

void throw_too_many_blocks(const char* kernel, std::int64_t blocks) {
  throw ValueError(std::string(kernel) + ": an array of these extents takes " +
                   std::to_string(blocks) + " blocks of threads, and a grid of a GPU has at most " +
                   std::to_string(kMostGridBlocks) + ": compute parts of the array in turn");
}

}  // namespace shmap::cuda
