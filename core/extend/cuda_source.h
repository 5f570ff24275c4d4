// Users' CUDA kernels that are given as text.
#pragma once
#include <string>

#include "shmap/extend/primitive.h"

namespace shmap {

// The text that the compiler is given: the struct Kernel and the parameters, then the user's own.
std::string whole_cuda_source(const std::string& source, const extend::Params& params);

// Enqueues it on k.stream. ValueError of more operands or results than a kernel takes; DeviceError.
void run_cuda_source(const std::string& primitive, const std::string& source,
                     const std::string& kernel, int threads, const extend::KernelArgs& k);

}  // namespace shmap
