// Kernels compiled from source at run time, by NVRTC, for one architecture.
#pragma once
#include <string>
#include <string_view>

namespace shmap::cuda {

// The format that the driver loads: a cubin, or PTX where the compiler is older than the GPU.
using KernelImage = std::string;

// True if NVRTC can be opened. Checked once; any thread.
bool can_compile_kernels();

// The architecture to compile for, for a GPU of compute capability major.minor: "sm_90", or
// "compute_120" where NVRTC knows only older architectures. DeviceError where NVRTC is absent.
std::string architecture(int major, int minor);

// The image of a source, which may include the headers of cuda/kernels/embedded/fused.h. Read from
// the disk cache (core/base/disk_cache.h) if it was compiled before. Blocks for tens of
// milliseconds. Throws DeviceError with the compiler's log and the source if the source does not
// compile.
KernelImage compile_kernel(const std::string& source, const std::string& architecture);

// A text of everything that an image depends on: versions, options, headers and the source.
std::string image_key(const std::string& source, const std::string& architecture);

}  // namespace shmap::cuda
