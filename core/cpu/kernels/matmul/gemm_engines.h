// The engines among which gemm.cpp chooses: the blocked kernel of this library, its AMX and AVX-512
// kernels and, where they were compiled in and can be opened, oneDNN and OpenBLAS. Only one .cpp
// uses each library.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "core/cpu/kernels/matmul/gemm.h"

namespace shmap::cpu {

struct GemmLibrary {
  // True if the library multiplies these dtypes, and fast enough on this CPU.
  bool (*supports)(DType dtype, DType out);
  void (*run)(const Gemm& g);  // m, n, k > 0; single-threaded
};

// nullptr if the library is absent. The first call opens it; thread-safe.
const GemmLibrary* onednn_gemm();
const GemmLibrary* openblas_gemm();

// This library's products in AMX tiles (bf16) and by AVX-512 (f32 and f64); nullptr where the
// compiler does not support them.
const GemmLibrary* amx_gemm();
const GemmLibrary* avx512_gemm();

// Products of f32 and f64 whose rows fit in one vector of AVX-512 or two of AVX2. narrow_gemm
// computes them without packing, except that it copies a transposed b first, which takes little
// time if b is small (is_narrow).
inline bool has_narrow_rows(const Gemm& g) { return g.n * itemsize(g.dtype) <= 64 && g.k <= 256; }
inline bool is_narrow(const Gemm& g) {
  constexpr std::int64_t small = 64;
  return has_narrow_rows(g) && (!g.trans_b || g.k * g.n <= small);
}
bool has_narrow_gemm();  // true if the CPU has AVX2 or AVX-512
void narrow_gemm(const Gemm& g);

inline constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
// The size of the blocks when `size` is cut into the fewest equal blocks of at most `most`, each a
// multiple of `unit`.
inline constexpr std::int64_t even_block(std::int64_t size, std::int64_t most, std::int64_t unit) {
  const std::int64_t whole = most / unit * unit;
  const std::int64_t blocks = ceil_div(size, whole > unit ? whole : unit);
  return ceil_div(ceil_div(size, blocks), unit) * unit;
}

// Multiplies every pair of dtypes that gemm takes. m, n > 0, k >= 0.
void own_gemm(const Gemm& g);

// Computes the whole product by the engine, or by the own kernel where the engine is a library and
// close_gemm_libraries() was called. Divides no sums.
void gemm_by(GemmEngine engine, const Gemm& g);

// The product whose C is C[m0 : m1, n0 : n1] of g.
Gemm gemm_block(const Gemm& g, std::int64_t m0, std::int64_t m1, std::int64_t n0, std::int64_t n1);

// Memory that a thread keeps from one product to the next. It only grows, until trim, in whole
// pages; from half a huge page on, in huge pages where these exist.
class GemmScratch {
 public:
  GemmScratch() = default;
  GemmScratch(const GemmScratch&) = delete;
  GemmScratch& operator=(const GemmScratch&) = delete;
  ~GemmScratch() { std::free(data_); }
  // At least `bytes` bytes, page-aligned; the contents are lost when the memory grows.
  void* get(std::size_t bytes) {
    if (bytes > size_) {
      std::free(data_);
      data_ = nullptr;
      size_ = 0;
      constexpr std::size_t huge = std::size_t{2} << 20;
      const std::size_t page = bytes >= huge / 2 ? huge : 4096;
      const std::size_t rounded = (bytes + page - 1) / page * page;
      data_ = std::aligned_alloc(page, rounded);
      if (data_ == nullptr) throw std::bad_alloc();
      if (page == huge) madvise(data_, rounded, MADV_HUGEPAGE);  // a hint; may fail
      size_ = rounded;
    }
    return data_;
  }
  // Frees more than `most` bytes, which are of a rare product.
  void trim(std::size_t most) {
    if (size_ <= most) return;
    std::free(data_);
    data_ = nullptr;
    size_ = 0;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace shmap::cpu
