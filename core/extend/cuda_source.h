// Users' CUDA kernels that are given as source text.
#pragma once
#include <string>

#include "shmap/extend/primitive.h"

namespace shmap {

// Returns the complete source: the struct Kernel, the parameters as macros, then the user's source.
std::string whole_cuda_source(const std::string& source, const extend::Params& params);

// Enqueues the kernel on k.stream. ValueError for more operands or results than a kernel takes;
// DeviceError where it cannot be compiled.
void run_cuda_source(const std::string& primitive, const std::string& source,
                     const std::string& kernel, int threads, const extend::KernelArgs& k);

}  // namespace shmap
