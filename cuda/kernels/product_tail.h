// What is done with a product after the library made it, where the library has no algorithm that
// does it along.
#pragma once
#include "cuda/kernels/cublaslt_gemm.h"

namespace shmap::cuda {

// C = f(C + bias) in place, of the gemm's C, bias and function; C of f32, f16 or bf16. Computed in
// f32 and rounded once.
void product_tail(const LtGemm& gemm, void* native_stream);

}  // namespace shmap::cuda
