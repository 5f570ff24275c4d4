// Products of floats so small that the launch and the wait for memory, not the arithmetic, take
// their time, as those of 64 × 64 matrices: an H200 computed 100 of these, of f32 and one after
// another in a graph, in 153 us, and in 307 us by cuBLASLt.
//
// A block of threads computes a tile of results. Its warps share k among them and need only the
// barriers of a warp, until the parts of the sums are added.
#pragma once
#include "cuda/kernels/matmul/cublaslt_gemm.h"

namespace shmap::cuda {

// True for a product that small_gemm takes in the place of cuBLASLt: of few operations, of a short
// k, and not in TF32. Of other dtypes than f32 there are far fewer: cuBLASLt has tensor cores for
// them. A function of dtypes and extents alone, so that a product has the same bits wherever its
// operands lie.
bool is_small(const LtGemm& gemm);

// Enqueues the product on `native_stream`, a cudaStream_t, with all members of `gemm` as
// cublaslt_gemm takes them. Sums are of f32, for f64 of f64, in an order that depends on k alone;
// the term, the bias and the function are applied to the sum, one after another, and the result is
// rounded once. relu keeps a NaN.
void small_gemm(const LtGemm& gemm, void* native_stream);

}  // namespace shmap::cuda
