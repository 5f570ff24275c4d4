// The runtime API with its C++ forms, and the spelling of device code, for a host compiler.
#pragma once
#include <cstddef>
#include <utility>

#include "cuda_runtime_api.h"
#include "sim_device.h"
#include "sim_kernel.h"
#include "vector_functions.h"

template <class... E, class... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(E...),
                                      A&&... args) {
  return [&](E... coerced) {
    void* addresses[] = {const_cast<void*>(static_cast<const volatile void*>(&coerced))...,
                         nullptr};
    return shmap_sim::launch(config, reinterpret_cast<const void*>(kernel),
                             &shmap_sim::KernelTypeOf<E...>::type, addresses);
  }(std::forward<A>(args)...);
}

template <class... E>
inline cudaError_t cudaLaunchKernel(void (*kernel)(E...), dim3 grid, dim3 block, void** args,
                                    size_t shared = 0, cudaStream_t stream = nullptr) {
  cudaLaunchConfig_t config{grid, block, shared, stream, nullptr, 0};
  return shmap_sim::launch(&config, reinterpret_cast<const void*>(kernel),
                           &shmap_sim::KernelTypeOf<E...>::type, args);
}

template <class... E>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(E...), enum cudaFuncAttribute attr,
                                        int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attr, value);
}

template <class... E>
inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* attr, void (*kernel)(E...)) {
  shmap_sim::learn_kernel(reinterpret_cast<const void*>(kernel),
                          &shmap_sim::KernelTypeOf<E...>::type);
  return ::cudaFuncGetAttributes(attr, reinterpret_cast<const void*>(kernel));
}

template <class... E>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(E...),
                                                                 int block_size, size_t shared) {
  return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), block_size, shared);
}

template <class T>
inline cudaError_t cudaMalloc(T** address, size_t size) {
  return ::cudaMalloc(reinterpret_cast<void**>(address), size);
}

template <class T>
inline cudaError_t cudaMallocAsync(T** address, size_t size, cudaStream_t stream) {
  return ::cudaMallocAsync(reinterpret_cast<void**>(address), size, stream);
}

template <class T>
inline cudaError_t cudaMallocHost(T** address, size_t size, unsigned int flags = 0) {
  return ::cudaHostAlloc(reinterpret_cast<void**>(address), size, flags);
}

template <class T>
inline cudaError_t cudaHostAlloc(T** address, size_t size, unsigned int flags) {
  return ::cudaHostAlloc(reinterpret_cast<void**>(address), size, flags);
}

inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned int flags) {
  return ::cudaEventCreateWithFlags(event, flags);
}

inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                        cudaGraphNode_t* error_node, char* log, size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes > 0) *log = '\0';
  return ::cudaGraphInstantiate(exec, graph, 0ULL);
}
