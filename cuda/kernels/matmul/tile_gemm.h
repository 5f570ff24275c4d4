// Products of f32 whose tiles of 64 × 64 results are few for one GPU, as those of the virtual
// devices that share it: cuBLASLt splits their k among blocks, and adds the parts in a second
// kernel; here the warps of one block share it.
#pragma once
#include "cuda/kernels/matmul/cublaslt_gemm.h"

namespace shmap::cuda {

// True where tile_gemm may be worth a measurement beside cuBLASLt's algorithms: f32 and not TF32,
// whose operands lie as pieces of 16 bytes, of extents for which cuBLASLt has few tiles.
bool may_be_tiled(const LtGemm& gemm);

// Enqueues the product on `native_stream`, a cudaStream_t, with all members of `gemm` as
// cublaslt_gemm takes them; may_be_tiled(gemm) is true. Sums have an order that depends on k alone;
// the term, the bias and the function are applied to the sum, and the result is rounded once.
void tile_gemm(const LtGemm& gemm, void* native_stream);

}  // namespace shmap::cuda
