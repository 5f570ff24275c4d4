// Applies the bias and the function of a product in a separate kernel, where the library has no
// algorithm that includes them.
#pragma once
#include "cuda/kernels/matmul/cublaslt_gemm.h"

namespace shmap::cuda {

// C = f(C + bias) in place, with the gemm's C, bias and function; C is f32, f16 or bf16. Computed
// in f32 and rounded once.
void product_tail(const LtGemm& gemm, void* native_stream);

}  // namespace shmap::cuda
