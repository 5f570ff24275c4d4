// Products of halves whose rows are not at multiples of 16 bytes, computed from padded copies of
// the operands, because cuBLASLt's fast kernels need such rows. (An H200 multiplied 2049³ of bf16
// at 100 TFLOP/s, 4096³ at 790. XLA pads such products too: its pass CublasPadForGemms.)
#pragma once
#include <optional>

#include "cuda/kernels/matmul/cublaslt_gemm.h"

namespace shmap::cuda {

struct PaddedGemm {
  // The product of the copies, whose extents are multiples of 8 where rows are contiguous. An
  // operand that needs no copy, and a result, stay where they are.
  LtGemm gemm;
  bool copies_a = false, copies_b = false, copies_c = false;
  std::int64_t a_bytes = 0, b_bytes = 0, c_bytes = 0;  // of the copies, multiples of 256; or 0

  std::int64_t bytes() const { return a_bytes + b_bytes + c_bytes; }
};

inline constexpr double kFewestPaddedFlops = 1e8;  // fewer take as long as the copies

// Nothing if copies cannot help: other dtypes, a batch, a bias, a function, an added operand, rows
// at multiples of 16 bytes, a product of fewer operations.
std::optional<PaddedGemm> padded(const LtGemm& gemm, double fewest_flops = kFewestPaddedFlops);

// Enqueues the copies of the operands of `from` to `room`, bytes() bytes at a multiple of 256, and
// sets the addresses of padded.gemm.
void copy_operands(const LtGemm& from, PaddedGemm& padded, void* room, void* native_stream);
// Enqueues the copy of the result, if it is not where it belongs.
void copy_result(const PaddedGemm& padded, const LtGemm& to, void* native_stream);

}  // namespace shmap::cuda
