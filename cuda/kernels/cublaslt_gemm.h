// Matrix products by cuBLASLt: C = op(A) · op(B) of row-major matrices, a batch of them one stride
// apart. op(A) is m × k, op(B) k × n, C m × n; lda, ldb, ldc count elements from one stored row to
// the next, and strides elements from one batch item to the next.
//
// Element types:
//   f32, f64      out = dtype
//   f16, bf16     accumulated in f32 and rounded once; out = dtype or f32
//
// Which algorithm runs is decided once for each problem (everything below but the addresses, of
// which only the alignment counts) and kind of GPU. Where SHMAP_TIME_GEMMS is on, a few that
// cuBLASLt names are measured at the first call outside of a capture, which waits for the stream;
// under capture, and where it is off, the first is taken. Later calls take the same one.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cuda {

struct LtGemm {
  DType dtype = f32;                      // of a and b
  DType out = f32;                        // of c
  bool trans_a = false, trans_b = false;  // a is stored k × m, b n × k
  bool tf32 = false;                      // operands of f32 may be rounded to TF32
  std::int64_t m = 0, n = 0, k = 0;       // at least 1
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
};

// Enqueues it on `native_stream`, a cudaStream_t of the current GPU. TypeError where the dtypes are
// none of the above; DeviceError where cuBLASLt cannot be opened (cuda/late_library.h) or refuses.
void cublaslt_gemm(const LtGemm& gemm, void* native_stream);

// Gives back the workspace of a stream that is about to be destroyed, and is done.
void drop_gemm_workspace(void* native_stream) noexcept;

}  // namespace shmap::cuda
