#include "core/cpu/kernels/reduce/arg_reduce.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/base/float_format.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/reduce/arg_reduce_loops.h"
#include "core/cpu/kernels/reduce/reduce_loops.h"

namespace shmap::cpu {
namespace {

struct Kernels {
  ArgLoops parts;
  CastFn widen;  // nullptr except for the half types
  std::int64_t itemsize, computed_itemsize;
};

Kernels find_kernels(ArgReduction op, DType dtype) {
  const bool half = is_half(dtype);
  const DType computed = reduce_partial_dtype(dtype);
  return {arg_loops(op, computed), half ? cast_kernel(dtype, DType::f32) : nullptr, itemsize(dtype),
          itemsize(computed)};
}

// Finds the extreme value of each piece, then searches the first piece that has the best value. So
// the run is read once, and only one piece of it twice.
std::int64_t index_in_run(const Kernels& k, const std::byte* in, std::int64_t n) {
  constexpr std::int64_t kPiece = ReduceScratch::kPiece;
  float* const wide = k.widen ? reduce_scratch().piece : nullptr;
  const auto piece = [&](std::int64_t at) -> const void* {
    if (!k.widen) return in + at * k.itemsize;
    k.widen(in + at * k.itemsize, wide, std::min(kPiece, n - at));
    return wide;
  };
  std::uint64_t best = 0, value = 0;
  std::int64_t best_at = 0;
  for (std::int64_t at = 0; at < n; at += kPiece) {
    k.parts.extreme(piece(at), std::min(kPiece, n - at), &value);
    if (at != 0 && !k.parts.before(&value, &best)) continue;
    best = value;
    best_at = at;
  }
  return best_at + k.parts.find(piece(best_at), std::min(kPiece, n - best_at), &best);
}

inline constexpr std::int64_t kColumns = 512;

// Handles columns j … j + m - 1 of in[reduced, inner], m <= kColumns. Row numbers have 32 bits, so
// that more rows are handled in stretches, whose results are compared one by one. (Not inlined, so
// that its arrays are not in the frame of its caller too.)
__attribute__((noinline)) void indices_in_columns(const Kernels& k, const std::byte* in,
                                                  std::int64_t reduced, std::int64_t inner,
                                                  std::int64_t m, std::int64_t* indices) {
  constexpr std::int64_t kStretch = std::int64_t{1} << 30;
  alignas(64) std::byte best[kColumns * 8], stretch_best[kColumns * 8];
  alignas(64) std::int32_t row_of[kColumns];
  alignas(64) float wide[kColumns];
  for (std::int64_t first = 0; first < reduced; first += kStretch) {
    const std::int64_t rows = std::min(kStretch, reduced - first);
    const auto row = [&](std::int64_t r) -> const void* {
      const std::byte* at = in + (first + r) * inner * k.itemsize;
      if (!k.widen) return at;
      k.widen(at, wide, m);
      return wide;
    };
    std::memcpy(stretch_best, row(0), static_cast<std::size_t>(m * k.computed_itemsize));
    std::fill_n(row_of, m, 0);
    for (std::int64_t r = 1; r < rows; ++r)
      k.parts.update(row(r), static_cast<std::int32_t>(r), stretch_best, row_of, m);
    for (std::int64_t j = 0; j < m; ++j) {
      std::byte* held = best + j * k.computed_itemsize;
      const std::byte* found = stretch_best + j * k.computed_itemsize;
      if (first != 0 && !k.parts.before(found, held)) continue;
      std::memcpy(held, found, static_cast<std::size_t>(k.computed_itemsize));
      indices[j] = first + row_of[j];
    }
  }
}

template <class Index>
void arg_reduce(const Kernels& k, const void* in, void* out, std::int64_t outer,
                std::int64_t reduced, std::int64_t inner) {
  const std::byte* a = static_cast<const std::byte*>(in);
  Index* o = static_cast<Index*>(out);
  for (std::int64_t i = 0; i < outer; ++i, a += reduced * inner * k.itemsize, o += inner) {
    if (inner == 1) {
      *o = static_cast<Index>(index_in_run(k, a, reduced));
      continue;
    }
    for (std::int64_t j = 0; j < inner; j += kColumns) {
      std::int64_t indices[kColumns];
      const std::int64_t m = std::min(kColumns, inner - j);
      indices_in_columns(k, a + j * k.itemsize, reduced, inner, m, indices);
      for (std::int64_t c = 0; c < m; ++c) o[j + c] = static_cast<Index>(indices[c]);
    }
  }
}

template <ArgReduction op, DType dtype, class Index>
void kernel(const void* in, void* out, std::int64_t outer, std::int64_t reduced,
            std::int64_t inner) {
  static const Kernels kernels = find_kernels(op, dtype);
  arg_reduce<Index>(kernels, in, out, outer, reduced, inner);
}

template <ArgReduction op, class Index, int... dtypes>
ArgReduceFn find(DType dtype, std::integer_sequence<int, dtypes...>) {
  static constexpr std::array<ArgReduceFn, sizeof...(dtypes)> table = {
      kernel<op, static_cast<DType>(dtypes), Index>...};
  return table[static_cast<std::size_t>(dtype)];
}

}  // namespace

ArgReduceFn arg_reduce_kernel(ArgReduction op, DType dtype, DType index_dtype) {
  if (dtype == DType::prng_key) return nullptr;
  constexpr auto all = std::make_integer_sequence<int, kDTypeCount - 1>{};
  const bool max = op == ArgReduction::argmax;
  if (index_dtype == DType::i32) {
    return max ? find<ArgReduction::argmax, std::int32_t>(dtype, all)
               : find<ArgReduction::argmin, std::int32_t>(dtype, all);
  }
  if (index_dtype == DType::i64) {
    return max ? find<ArgReduction::argmax, std::int64_t>(dtype, all)
               : find<ArgReduction::argmin, std::int64_t>(dtype, all);
  }
  return nullptr;
}

}  // namespace shmap::cpu
