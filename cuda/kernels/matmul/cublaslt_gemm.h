// Matrix products by cuBLASLt: C = f(op(A) · op(B) + D + bias) of row-major matrices, in a batch
// with constant strides; D, the bias and the function f are optional. op(A) is m × k, op(B) k × n,
// C and D m × n; the bias has one number for each of the n columns, the same for all items. lda,
// ldb, ldc, ldd are elements from one stored row to the next, strides are elements from one batch
// item to the next. D may be C itself, with the same layout. Whether a NaN passes through relu and
// gelu depends on the library.
//
// Element types:
//   f32, f64      out = dtype
//   f16, bf16     accumulated in f32; out = dtype or f32. Where the library adds up parts of k, it
//                 may round each to C's type first.
// D and the bias have C's dtype. f64 has neither bias nor function. Where cuBLASLt has no algorithm
// for a product with these, a kernel of this library applies them afterwards
// (cuda/kernels/matmul/product_tail.h), and the intermediate result is rounded to C's type.
//
// The algorithm is chosen once for each problem (all members below; of the addresses only their
// alignment) and kind of GPU, and is kept on disk for that version of cuBLASLt
// (core/base/disk_cache.h). If SHMAP_TIME_GEMMS is on, the algorithms that cuBLASLt proposes are
// timed at the first call outside of a capture, which blocks until the stream is idle: as the
// virtual devices of the GPU run them, all at once (shared_timer.h). Under
// capture, with SHMAP_TIME_GEMMS off, or where D is C (only one run may change C), the first
// proposal is chosen. Later calls use the same algorithm.
#pragma once
#include <cstdint>

#include "core/base/activation.h"
#include "shmap/dtype.h"

namespace shmap::cuda {

struct LtGemm {
  DType dtype = f32;                      // of a and b
  DType out = f32;                        // of c
  bool trans_a = false, trans_b = false;  // a is stored k × m, b as n × k
  bool tf32 = false;                      // f32 operands may be rounded to TF32
  std::int64_t m = 0, n = 0, k = 0;       // at least 1
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* d = nullptr;  // null: nothing is added
  std::int64_t ldd = 0, stride_d = 0;
  const void* bias = nullptr;  // null: none
  Activation function = Activation::none;
};

// Enqueues the product on `native_stream`, a cudaStream_t of the current GPU. TypeError where the
// dtypes are not listed above; DeviceError where cuBLASLt cannot be opened
// (cuda/libraries/late_library.h) or reports an error.
void cublaslt_gemm(const LtGemm& gemm, void* native_stream);

// Frees the workspace of a stream that is about to be destroyed; its work must be done.
void drop_gemm_workspace(void* native_stream) noexcept;

}  // namespace shmap::cuda
