#include "core/cpu/kernels/matmul/vector_product.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/thread_kept.h"
#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/matmul/gemm_engines.h"
#include "core/cpu/kernels/reduce/vector_sums.h"

namespace shmap::cpu {
namespace {

const VectorSums& sums_of(DType dtype) {
  static const std::array<VectorSums, kDTypeCount> found = [] {
    std::array<VectorSums, kDTypeCount> all;
    for (int i = 0; i < kDTypeCount; ++i)
      all[static_cast<std::size_t>(i)] = vector_sums(static_cast<DType>(i));
    return all;
  }();
  return found[static_cast<std::size_t>(dtype)];
}

// The operand that is the matrix, and its layout.
struct Sides {
  const void *matrix, *vector;
  std::int64_t ld, stride;  // between lines of the matrix, and between elements of the vector
  std::int64_t results, result_stride;
  bool along;
};

Sides sides_of(const Gemm& g) {
  Sides s;
  if (g.n == 1) {
    s = {g.a, g.b, g.lda, g.trans_b ? 1 : g.ldb, g.m, g.ldc, !g.trans_a};
  } else {
    s = {g.b, g.a, g.ldb, g.trans_a ? g.lda : 1, g.n, 1, g.trans_b};
  }
  if (s.results == 1 && s.ld == 1) s.along = true;
  return s;
}

struct VectorScratch {
  GemmScratch raw, wide, partials;
};

template <class T>
void collect(const void* from, std::int64_t stride, std::int64_t n, void* to) {
  const T* const a = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < n; ++i) static_cast<T*>(to)[i] = a[i * stride];
}

// Returns the vector as contiguous elements of the compute type.
const void* contiguous(const Sides& s, DType dtype, DType computed, std::int64_t k) {
  const void* from = s.vector;
  const std::int64_t size = itemsize(dtype);
  VectorScratch& scratch = kept_by_thread<VectorScratch>();
  if (s.stride != 1) {
    void* const to = scratch.raw.get(static_cast<std::size_t>(k * size));
    if (size == 2)
      collect<std::uint16_t>(from, s.stride, k, to);
    else if (size == 4)
      collect<std::uint32_t>(from, s.stride, k, to);
    else
      collect<std::uint64_t>(from, s.stride, k, to);
    from = to;
  }
  if (dtype == computed) return from;
  void* const to = scratch.wide.get(static_cast<std::size_t>(k) * sizeof(float));
  cast_kernel(dtype, computed)(from, to, k);
  return to;
}

template <class Compute>
void write(const Compute* sums, Compute* c, std::int64_t stride, std::int64_t n, bool add) {
  for (std::int64_t i = 0; i < n; ++i) c[i * stride] = add ? c[i * stride] + sums[i] : sums[i];
}

// Rounds sums[0 … n) to results of a half type.
void write_half(DType dtype, float* sums, std::uint16_t* c, std::int64_t stride, std::int64_t n,
                bool add) {
  const CastFn widen = cast_kernel(dtype, f32), narrow = cast_kernel(f32, dtype);
  alignas(64) std::uint16_t block[256];
  alignas(64) float before[256];
  for (std::int64_t i = 0; i < n; i += 256) {
    const std::int64_t m = std::min<std::int64_t>(256, n - i);
    if (add) {
      collect<std::uint16_t>(c + i * stride, stride, m, block);
      widen(block, before, m);
      for (std::int64_t j = 0; j < m; ++j) sums[i + j] = before[j] + sums[i + j];
    }
    narrow(sums + i, block, m);
    for (std::int64_t j = 0; j < m; ++j) c[(i + j) * stride] = block[j];
  }
}

// Writes results begin, begin + 1, … of g from their sums; overwrites `sums` for half types.
void write_results(const Gemm& g, const Sides& s, std::int64_t begin, void* sums, std::int64_t n) {
  std::byte* const c = static_cast<std::byte*>(g.c) + begin * s.result_stride * itemsize(g.out);
  if (g.out == f64)
    write(static_cast<const double*>(sums), reinterpret_cast<double*>(c), s.result_stride, n,
          g.accumulate);
  else if (g.out == f32)
    write(static_cast<const float*>(sums), reinterpret_cast<float*>(c), s.result_stride, n,
          g.accumulate);
  else
    write_half(g.out, static_cast<float*>(sums), reinterpret_cast<std::uint16_t*>(c),
               s.result_stride, n, g.accumulate);
}

// Writes to `out`, which has room for kResultRoom sums, the partial sums of results [begin, begin +
// n) over block b of the summed dim. The lines of the matrix lie along that dim.
void sum_block(const Gemm& g, const Sides& s, std::int64_t b, std::int64_t begin, std::int64_t n,
               void* out) {
  const std::int64_t first = b * kSumBlock, size = itemsize(g.dtype);
  Sides block = s;
  block.matrix = static_cast<const std::byte*>(s.matrix) + first * size;
  block.vector = static_cast<const std::byte*>(s.vector) + first * s.stride * size;
  const std::int64_t k = std::min(kSumBlock, g.k - first);
  const VectorProduct p = {block.matrix, s.ld, k, contiguous(block, g.dtype, sum_type(g), k)};
  sums_of(g.dtype).along(p, begin, n, out);
}

// Computes kTogether results at a time over all blocks, so that they share the reads of the vector.
void add_long_sums(const Gemm& g, const Sides& s) {
  constexpr std::int64_t kTogether = 16;
  alignas(64) double sums[kResultRoom];  // or floats
  const std::int64_t blocks = sum_block_count(g.k), size = itemsize(sum_type(g));
  GemmScratch& scratch = kept_by_thread<VectorScratch>().partials;
  auto* const partials =
      static_cast<std::byte*>(scratch.get(static_cast<std::size_t>(blocks * kTogether * size)));
  for (std::int64_t i = 0; i < s.results; i += kTogether) {
    const std::int64_t n = std::min(kTogether, s.results - i);
    for (std::int64_t b = 0; b < blocks; ++b) {
      sum_block(g, s, b, i, n, sums);
      std::memcpy(partials + b * n * size, sums, static_cast<std::size_t>(n * size));
    }
    add_in_pairs(g, partials, blocks, n);
    write_results(g, s, i, partials, n);
  }
}

}  // namespace

bool is_vector_product(const Gemm& g) {
  if ((g.m != 1 && g.n != 1) || g.k <= 0 || sums_of(g.dtype).along == nullptr) return false;
  constexpr std::int64_t side_by_side = 16;
  const Sides s = sides_of(g);
  return s.along || s.results >= side_by_side;
}

void vector_product(const Gemm& g) {
  const Sides s = sides_of(g);
  if (s.along && g.k > kSumBlock) return add_long_sums(g, s);
  const VectorProduct p = {s.matrix, s.ld, g.k, contiguous(s, g.dtype, sum_type(g), g.k)};
  const SumsFn sums = s.along ? sums_of(g.dtype).along : sums_of(g.dtype).across;
  alignas(64) double results[kResultRoom];  // or floats
  for (std::int64_t i = 0; i < s.results; i += kMostResults) {
    const std::int64_t n = std::min(kMostResults, s.results - i);
    sums(p, i, n, results);
    write_results(g, s, i, results, n);
  }
}

bool has_long_sums(const Gemm& g) {
  constexpr std::int64_t kFewResults = 64;  // with more results, parts are cut along the results
  if (g.k <= kSumBlock || !is_vector_product(g)) return false;
  const Sides s = sides_of(g);
  return s.along && s.results <= kFewResults;
}

std::int64_t long_sums_bytes(const Gemm& g) {
  return sum_block_count(g.k) * sides_of(g).results * itemsize(sum_type(g));
}

void sum_blocks(const Gemm& g, std::int64_t begin, std::int64_t end, void* partials) {
  const Sides s = sides_of(g);
  alignas(64) double sums[kResultRoom];  // or floats
  const std::int64_t row = s.results * itemsize(sum_type(g));
  for (std::int64_t b = begin; b < end; ++b) {
    sum_block(g, s, b, 0, s.results, sums);
    std::memcpy(static_cast<std::byte*>(partials) + b * row, sums, static_cast<std::size_t>(row));
  }
}

void add_in_pairs(const Gemm& g, void* partials, std::int64_t rows, std::int64_t n) {
  const BinaryFn add = binary_kernel(BinaryOp::add, sum_type(g));
  while (rows > 1) {
    const std::int64_t half = (rows + 1) / 2;
    const void* const upper =
        static_cast<const std::byte*>(partials) + half * n * itemsize(sum_type(g));
    add(partials, false, upper, false, partials, (rows - half) * n);
    rows = half;
  }
}

void finish_long_sums(const Gemm& g, void* partials) {
  const Sides s = sides_of(g);
  add_in_pairs(g, partials, sum_block_count(g.k), s.results);
  write_results(g, s, 0, partials, s.results);
}

}  // namespace shmap::cpu
