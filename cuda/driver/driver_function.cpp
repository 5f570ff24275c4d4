#include "cuda/driver/driver_function.h"

#include <cuda_runtime_api.h>

namespace shmap::cuda {

void* driver_function(const char* name) noexcept {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &found, 12040, cudaEnableDefault, &status);
#else
  const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status);
#endif
  if (code != cudaSuccess) cudaGetLastError();
  return code == cudaSuccess && status == cudaDriverEntryPointSuccess ? found : nullptr;
}

}  // namespace shmap::cuda
