// Matrix multiplication on the calling thread: C = op(A) · op(B), or C += op(A) · op(B), of
// row-major matrices. op(A) is m × k, op(B) k × n, C m × n; lda, ldb, ldc are elements from one
// stored row to the next. The caller loops over a batch and provides the threads: gemm_part
// computes one of `parts` disjoint pieces of C, and different threads may compute the pieces at
// once.
//
// Element types:
//   f32, f64      out = dtype.
//   f16, bf16     accumulated in f32 and rounded once; out = dtype or f32.
//   i8 … u64      out = dtype; exact modulo 2^bits, like the C++ unsigned arithmetic of that width.
//   bool_         out = bool_; logical "or" of "and"s.
// A sum over k = 0 is zero. `accumulate` adds to what C holds (bool_: or).
//
// Results depend on the operands and on `parts`, never on timing: the library or kernel is chosen
// by dtype, sizes and the CPU's features.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

struct Gemm {
  DType dtype = f32;                      // of a and b
  DType out = f32;                        // of c
  bool trans_a = false, trans_b = false;  // a is stored k × m, b n × k
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  bool accumulate = false;
};

// Computes the whole product on the calling thread. Throws TypeError where the pair of dtypes is
// not listed above.
void gemm(const Gemm& g);
// The function that gemm(g) calls for the dtypes, sizes and layout of g, for a batch of products
// that differ in a, b and c alone: its choice takes longer than a product of a few numbers. Throws
// as gemm() does.
using GemmFn = void (*)(const Gemm& g);
GemmFn gemm_of(const Gemm& g);

// True if the product with `accumulate` has the same bits as a product whose result is added to C
// afterwards, as a whole or in parts. This holds if no sum over k is cut. (If a whole sum
// underflows, OpenBLAS may give a zero of the other sign.)
bool gemm_accumulates_exactly(const Gemm& g);

// The best number of parts for `workers` threads; 1 where the product is too small to be split.
int gemm_parts(const Gemm& g, int workers);
// Part `part` of `parts`, 0 <= part < parts; every element of C belongs to exactly one part. With
// parts > 1 no sum over k is divided; where gemm() would divide sums, divide the product by
// divided_sums.h first.
void gemm_part(const Gemm& g, int part, int parts);
// The product of that part alone, whose c is the part's block of C; m or n may be 0.
Gemm gemm_part_block(const Gemm& g, int part, int parts);

// The libraries and kernels gemm can choose among; for benchmarks and tests.
enum class GemmEngine : std::uint8_t { own, amx, avx512, onednn, openblas };
inline constexpr int kGemmEngines = 5;
const char* to_string(GemmEngine engine);
bool gemm_engine_available(GemmEngine engine, DType dtype);
GemmEngine gemm_engine(const Gemm& g);             // the engine that gemm(g) uses
void gemm_with(GemmEngine engine, const Gemm& g);  // TypeError if it is not available

// For process exit: gemm() calls no library from now on, because the static objects of a library
// that was opened late are destroyed early, before objects whose destructors may multiply.
void close_gemm_libraries() noexcept;

}  // namespace shmap::cpu
