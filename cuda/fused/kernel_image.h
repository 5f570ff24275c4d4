// Kernels compiled from source at run time, by NVRTC, for one architecture.
#pragma once
#include <string>
#include <string_view>

namespace shmap::cuda {

// What the driver loads: a cubin, or PTX where the compiler is older than the GPU.
using KernelImage = std::string;

// Whether there is a compiler: NVRTC can be opened. Asked once; any thread.
bool can_compile_kernels();

// How a GPU of compute capability major.minor is compiled for: "sm_90", or "compute_120" where
// NVRTC knows only older ones than the GPU is. DeviceError where NVRTC is absent.
std::string architecture(int major, int minor);

// The image of that source, which may include the headers of cuda/kernels/fused.h. Taken from the
// disk (core/base/disk_cache.h) where it was compiled before. Blocks for tens of milliseconds.
// Throws DeviceError with the compiler's log and the source where it does not compile.
KernelImage compile_kernel(const std::string& source, const std::string& architecture);

// All that an image depends on: versions, options, headers and the source.
std::string image_key(const std::string& source, const std::string& architecture);

}  // namespace shmap::cuda
