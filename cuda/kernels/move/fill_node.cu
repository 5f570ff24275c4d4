#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/move/fill_node.h"

namespace shmap::cuda {
namespace {

// `element` has the bytes of one element of `size` (1, 2 or 4) bytes, the lowest first.
__global__ void __launch_bounds__(kThreads)
    fill_bytes(unsigned char* to, unsigned bytes, unsigned element, unsigned size) {
  for (unsigned i = threadIdx.x; i < bytes; i += kThreads)
    to[i] = static_cast<unsigned char>(element >> (8 * (i % size)));
}

}  // namespace

cudaError_t add_fill_node(cudaGraphNode_t* node, cudaGraph_t graph,
                          std::span<const cudaGraphNode_t> after, const cudaMemsetParams& fill) {
  // Loads the kernel where kernels are loaded lazily; the simulator learns its parameters here.
  cudaFuncAttributes attributes;
  if (const cudaError_t code = cudaFuncGetAttributes(&attributes, fill_bytes); code != cudaSuccess)
    return code;
  auto* to = static_cast<unsigned char*>(fill.dst);
  auto bytes = static_cast<unsigned>(fill.width * fill.elementSize);
  unsigned element = fill.value, size = fill.elementSize;
  void* arguments[] = {&to, &bytes, &element, &size};
  cudaKernelNodeParams kernel = {};
  kernel.func = reinterpret_cast<void*>(&fill_bytes);
  kernel.gridDim = dim3(1);
  kernel.blockDim = dim3(kThreads);
  kernel.kernelParams = arguments;
  return cudaGraphAddKernelNode(node, graph, after.data(), after.size(), &kernel);
}

}  // namespace shmap::cuda
