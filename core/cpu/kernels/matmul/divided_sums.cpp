#include "core/cpu/kernels/matmul/divided_sums.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/base/float_format.h"
#include "core/base/thread_kept.h"
#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/matmul/gemm_engines.h"
#include "core/cpu/kernels/matmul/vector_product.h"

namespace shmap::cpu {
namespace {

struct PartialScratch {
  GemmScratch partials;
};

// Piece p of `pieces` of g, whose result is the piece's partial result.
Gemm sum_piece(const Gemm& g, std::int64_t p, std::int64_t pieces, void* partials) {
  constexpr std::int64_t unit = 16;
  const std::int64_t units = ceil_div(g.k, unit), size = itemsize(g.dtype);
  const std::int64_t begin = units * p / pieces * unit;
  Gemm piece = g;
  piece.k = std::min(g.k, units * (p + 1) / pieces * unit) - begin;
  piece.a = static_cast<const std::byte*>(g.a) + begin * (g.trans_a ? g.lda : 1) * size;
  piece.b = static_cast<const std::byte*>(g.b) + begin * (g.trans_b ? 1 : g.ldb) * size;
  piece.out = sum_type(g);
  piece.c = static_cast<std::byte*>(partials) + p * g.m * g.n * itemsize(piece.out);
  piece.ldc = g.n;
  piece.accumulate = false;
  return piece;
}

void write_rows(const Gemm& g, const void* sums) {
  const std::int64_t size = itemsize(g.out);
  const BinaryFn add = g.accumulate ? binary_kernel(BinaryOp::add, g.out) : nullptr;
  for (std::int64_t i = 0; i < g.m; ++i) {
    const std::byte* const row = static_cast<const std::byte*>(sums) + i * g.n * size;
    std::byte* const c = static_cast<std::byte*>(g.c) + i * g.ldc * size;
    if (g.accumulate)
      add(c, false, row, false, c, g.n);
    else
      std::memcpy(c, row, static_cast<std::size_t>(g.n * size));
  }
}

// Rounds sums[m, n] to results of a half type.
void write_half_rows(const Gemm& g, float* sums) {
  constexpr std::int64_t block = 256;
  const CastFn widen = cast_kernel(g.out, f32), narrow = cast_kernel(f32, g.out);
  alignas(64) float before[block];
  for (std::int64_t i = 0; i < g.m; ++i) {
    float* const row = sums + i * g.n;
    std::byte* const c = static_cast<std::byte*>(g.c) + i * g.ldc * itemsize(g.out);
    for (std::int64_t j = 0; g.accumulate && j < g.n; j += block) {
      const std::int64_t count = std::min(block, g.n - j);
      widen(c + j * itemsize(g.out), before, count);
      for (std::int64_t q = 0; q < count; ++q) row[j + q] += before[q];
    }
    narrow(row, c, g.n);
  }
}

}  // namespace

std::int64_t count_sum_pieces(const Gemm& g) {
  if (has_long_sums(g)) return sum_block_count(g.k);
  // Measured. Results that fill more than 96 x 96 keep threads busy when they are cut. A piece must
  // be worth the call of a library and the addition of its results, and a power of two keeps 2, 4,
  // 8 or 16 threads equally busy.
  constexpr std::int64_t most_results = 96 * 96, most_pieces = 16, least_work = 1 << 20;
  const std::int64_t results = g.m * g.n;
  if (!is_floating(g.dtype) || g.m < 2 || g.n < 2 || results > most_results) return 1;
  std::int64_t pieces = 1;
  while (pieces < most_pieces && g.k >= pieces * kShortestDivided &&
         results * g.k >= 2 * pieces * least_work)
    pieces *= 2;
  return pieces;
}

std::int64_t partial_results_bytes(const Gemm& g) {
  if (has_long_sums(g)) return long_sums_bytes(g);
  return sum_pieces(g) * g.m * g.n * itemsize(sum_type(g));
}

void run_sum_pieces(const Gemm& g, std::int64_t begin, std::int64_t end, void* partials) {
  if (has_long_sums(g)) return sum_blocks(g, begin, end, partials);
  const std::int64_t pieces = sum_pieces(g);
  const GemmEngine engine = gemm_engine(g);
  for (std::int64_t p = begin; p < end; ++p) gemm_by(engine, sum_piece(g, p, pieces, partials));
}

void finish_sum_pieces(const Gemm& g, void* partials) {
  if (has_long_sums(g)) return finish_long_sums(g, partials);
  const std::int64_t pieces = sum_pieces(g), results = g.m * g.n;
  add_in_pairs(g, partials, pieces, results);
  if (is_half(g.out))
    write_half_rows(g, static_cast<float*>(partials));
  else
    write_rows(g, partials);
}

void divided_product(const Gemm& g) {
  void* const partials = kept_by_thread<PartialScratch>().partials.get(
      static_cast<std::size_t>(partial_results_bytes(g)));
  run_sum_pieces(g, 0, sum_pieces(g), partials);
  finish_sum_pieces(g, partials);
}

}  // namespace shmap::cpu
