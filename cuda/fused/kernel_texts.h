// The headers of cuda/kernels that kernels include which are compiled at run time, as texts: the
// build puts them into the library (cmake/embed_kernel_texts.cmake).
#pragma once
#include <span>

namespace shmap::cuda {

struct KernelText {
  const char* name;  // as it is included
  const char* text;
};
std::span<const KernelText> kernel_texts();

}  // namespace shmap::cuda
