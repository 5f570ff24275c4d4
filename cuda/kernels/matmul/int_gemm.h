// Matrix products of integers, exact modulo 2^bits, and of bools ("or" of "and"s), which cuBLASLt
// lacks. C = A · B, in a batch; A is m × k, B k × n, C m × n. Strides are in elements.
#pragma once
#include <cstdint>

namespace shmap::cuda {

struct IntGemm {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::int64_t a_row = 0, a_column = 0;  // from a[i, l] to a[i + 1, l], and to a[i, l + 1]
  std::int64_t b_row = 0, b_column = 0;
  std::int64_t c_row = 0;                           // columns of c are contiguous
  std::int64_t a_item = 0, b_item = 0, c_item = 0;  // from one item of the batch to the next
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
};

// Enqueues the product on `native_stream`, a cudaStream_t. `itemsize` is 1, 2, 4 or 8: signed and
// unsigned integers have the same product. `logical`: for bools, of itemsize 1. A sum over k = 0 is
// zero.
void int_gemm(const IntGemm& gemm, int itemsize, bool logical, void* native_stream);

}  // namespace shmap::cuda
