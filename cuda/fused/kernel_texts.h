// The texts of those headers of cuda/kernels that run-time compiled kernels include; the build
// embeds them in the library (cmake/embed_kernel_texts.cmake).
#pragma once
#include <span>

namespace shmap::cuda {

struct KernelText {
  const char* name;  // as in its #include
  const char* text;
};
std::span<const KernelText> kernel_texts();

}  // namespace shmap::cuda
