// Matrix products by cuBLASLt: C = f(op(A) · op(B) + D + bias) of row-major matrices, a batch of
// them one stride apart; D, the bias and the function f where they are asked for. op(A) is m × k,
// op(B) k × n, C and D m × n, the bias a number for each of the n columns, the same for all items;
// lda, ldb, ldc, ldd count elements from one stored row to the next, and strides elements from one
// batch item to the next. D may be C itself, and then lies as it does. A NaN passes relu and gelu
// if the library lets it.
//
// Element types:
//   f32, f64      out = dtype
//   f16, bf16     accumulated in f32; out = dtype or f32. Where the library adds up parts of k, it
//                 may round each to C's type before
// D and the bias are of C's. f64 has neither bias nor function. Where cuBLASLt has no algorithm for
// a product with them, they are a kernel of ours after it (cuda/kernels/product_tail.h), and what
// is between is rounded to C's type.
//
// Which algorithm runs is decided once for each problem (everything below but the addresses, of
// which only the alignment counts) and kind of GPU, and kept on disk for that version of cuBLASLt
// (core/base/disk_cache.h). Where SHMAP_TIME_GEMMS is on, what cuBLASLt names is measured at the
// first call outside of a capture, which waits for the stream; under capture, and where it is off,
// the first is taken, as where D is C, which no run may change but one. Later calls take the same
// one.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cuda {

enum class LtFunction : std::uint8_t { none, relu, gelu };  // gelu: of its form with tanh

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
  const void* d = nullptr;  // null: nothing is added
  std::int64_t ldd = 0, stride_d = 0;
  const void* bias = nullptr;  // null: none
  LtFunction function = LtFunction::none;
};

// Enqueues it on `native_stream`, a cudaStream_t of the current GPU. TypeError where the dtypes are
// none of the above; DeviceError where cuBLASLt cannot be opened (cuda/libraries/late_library.h) or
// refuses.
void cublaslt_gemm(const LtGemm& gemm, void* native_stream);

// Gives back the workspace of a stream that is about to be destroyed, and is done.
void drop_gemm_workspace(void* native_stream) noexcept;

}  // namespace shmap::cuda
