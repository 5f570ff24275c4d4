// Programmatic dependent launch (CUDA programming guide): a kernel may begin while the kernel
// before it in the stream still runs, which hides most of a launch: 0.3 us a kernel on an H100.
// Compiled as text at run time too.
#pragma once

namespace shmap::cuda {

// The first statement of every kernel of this library, before it reads or writes memory: waits
// until the kernels before it have ended and their results are visible. Without effect in a kernel
// that was launched in the usual way. The simulator fails a dependent launch whose threads do not
// come here.
#if defined(__CUDACC__)
__device__ __forceinline__ void after_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#elif defined(SHMAP_SIM_DEVICE)
inline void after_predecessor() { cudaGridDependencySynchronize(); }
#endif

}  // namespace shmap::cuda
