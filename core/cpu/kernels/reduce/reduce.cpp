#include "core/cpu/kernels/reduce/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/float_format.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/reduce/reduce_loops.h"
#include "shmap/error.h"

namespace shmap::cpu {
namespace {

// A contiguous run is cut into pieces of this many elements, whose results form a balanced tree.
inline constexpr std::int64_t kPiece = ReduceScratch::kPiece;
static_assert(kReduceBlock % kPiece == 0 &&
                  std::has_single_bit(std::uint64_t{kReduceBlock / kPiece}),
              "a block is a subtree of the whole");

// Shorter rows are joined; for others the order of additions depends on `reduced` alone.
inline constexpr std::int64_t kNarrow = 64;

// The kernels for one op and dtype.
struct Kernels {
  DType dtype, computed;
  RunFn run;
  RowsFn rows;
  TreeFn trees[4];       // for 2, 4, 8 and 16 rows
  CastFn widen, narrow;  // nullptr except for the half types
  TreeFn from_half[4];   // trees of elements that are not widened yet; nullptr except for bf16
  TreeFn pair() const { return trees[0]; }
};

Kernels find_kernels(Reduction op, DType dtype) {
  const bool half = is_half(dtype);
  const DType computed = reduce_partial_dtype(dtype);
  return {dtype,
          computed,
          run_kernel(op, computed),
          rows_kernel(op, computed),
          {tree_kernel(op, computed, 2), tree_kernel(op, computed, 4), tree_kernel(op, computed, 8),
           tree_kernel(op, computed, 16)},
          half ? cast_kernel(dtype, DType::f32) : nullptr,
          half ? cast_kernel(DType::f32, dtype) : nullptr,
          {dtype == DType::bf16 ? bf16_tree_kernel(op, 2) : nullptr,
           dtype == DType::bf16 ? bf16_tree_kernel(op, 4) : nullptr,
           dtype == DType::bf16 ? bf16_tree_kernel(op, 8) : nullptr,
           dtype == DType::bf16 ? bf16_tree_kernel(op, 16) : nullptr}};
}

// A balanced tree over single elements that arrive one after another; LeafTree does the same for
// arrays.
class ElementTree {
 public:
  explicit ElementTree(TreeFn pair) : pair_(pair) {}
  void* next() { return at(depth_); }
  void add() {
    ++depth_;
    for (std::uint64_t bit = ++count_; bit % 2 == 0; bit /= 2) {
      --depth_;
      combine(at(depth_ - 1), at(depth_));
    }
  }
  const void* finish() {
    for (; depth_ > 1; --depth_) combine(at(depth_ - 2), at(depth_ - 1));
    return at(0);
  }

 private:
  std::byte* at(int i) { return values_ + 8 * i; }
  void combine(std::byte* left, const std::byte* right) {
    const void* both[2] = {left, right};
    pair_(both, left, 1);
  }
  TreeFn pair_;
  int depth_ = 0;
  std::uint64_t count_ = 0;
  alignas(8) std::byte values_[8 * 64];
};

// Reduces n >= 1 contiguous elements to one element of the computed dtype.
void reduce_contiguous(const Kernels& k, const void* in, std::int64_t n, void* out) {
  const std::byte* a = static_cast<const std::byte*>(in);
  const std::int64_t size = itemsize(k.dtype);
  float* const wide = k.widen ? reduce_scratch().piece : nullptr;
  const auto piece = [&](std::int64_t at, std::int64_t m, void* to) {
    if (!k.widen) return k.run(a + at * size, m, to);
    k.widen(a + at * size, wide, m);
    k.run(wide, m, to);
  };
  if (n <= kPiece) return piece(0, n, out);
  ElementTree tree(k.pair());
  for (std::int64_t at = 0; at < n; at += kPiece) {
    piece(at, std::min(kPiece, n - at), tree.next());
    tree.add();
  }
  std::memcpy(out, tree.finish(), static_cast<std::size_t>(itemsize(k.computed)));
}

// Reduces in[rows, reduced], reduced >= 1, to out[rows] of the computed dtype.
void reduce_lines(const Kernels& k, const std::byte* in, std::int64_t rows, std::int64_t reduced,
                  std::byte* out) {
  const std::int64_t size = itemsize(k.dtype), out_size = itemsize(k.computed);
  if (!k.widen && reduced <= kPiece) return k.rows(in, rows, reduced, out);
  if (reduced >= short_row(k.computed)) {
    for (std::int64_t i = 0; i < rows; ++i)
      reduce_contiguous(k, in + i * reduced * size, reduced, out + i * out_size);
    return;
  }
  float* const wide = reduce_scratch().piece;
  const std::int64_t most = kPiece / reduced;
  for (std::int64_t i = 0; i < rows; i += most) {
    const std::int64_t m = std::min(most, rows - i);
    k.widen(in + i * reduced * size, wide, m * reduced);
    k.rows(wide, m, reduced, out + i * out_size);
  }
}

// The rows of in[rows, stride].
struct EvenRows {
  static constexpr int kAtOnce = 8;  // at even distances sixteen could meet in one set of a cache
  const std::byte* in;
  std::int64_t step;  // bytes
  const void* operator()(std::int64_t row) const { return in + row * step; }
};

// Rows at any addresses, and a range of their columns. A reduction takes groups of rows, and
// meanwhile prefetches the rows that are `ahead` positions further on in the list.
struct ApartRows {
  static constexpr int kAtOnce = 16;
  static constexpr std::int64_t kMostBytes = 512;  // most bytes of a row to prefetch
  const void* const* rows;
  std::int64_t count;   // number of addresses in `rows`, including those of the next reductions
  std::int64_t offset;  // bytes of a row before the first column
  std::int64_t bytes;   // bytes of a row's columns
  std::int64_t ahead;
  const void* operator()(std::int64_t row) const {
    const std::int64_t next = row + ahead;
    if (next < count) {
      const std::byte* const from = static_cast<const std::byte*>(rows[next]) + offset;
      for (std::int64_t at = 0; at < std::min(bytes, kMostBytes); at += 64)
        __builtin_prefetch(from + at);
    }
    return static_cast<const std::byte*>(rows[row]) + offset;
  }
};

// Reduces row_at(0) … row_at(rows - 1), each of m elements, to out[m] of the computed dtype. m is
// at most the elements of a leaf.
template <class RowAt>
void reduce_rows(const Kernels& k, const RowAt& row_at, std::int64_t rows, std::int64_t m,
                 void* out) {
  std::byte(*const wide)[LeafTree::kLeafBytes] = k.widen ? reduce_scratch().group : nullptr;
  const void* group[16];
  const auto reduce_group = [&](std::int64_t row, int count, void* to) {
    for (int j = 0; j < count; ++j) group[j] = row_at(row + j);
    if (count == 1) {
      if (k.widen) return k.widen(group[0], to, m);
      std::memcpy(to, group[0], static_cast<std::size_t>(m * itemsize(k.computed)));
      return;
    }
    const int tree = std::countr_zero(static_cast<unsigned>(count)) - 1;
    if (k.from_half[0]) return k.from_half[tree](group, to, m);
    for (int j = 0; k.widen && j < count; ++j) {
      k.widen(group[j], wide[j], m);
      group[j] = wide[j];
    }
    k.trees[tree](group, to, m);
  };
  const int most = k.widen && !k.from_half[0] ? 8 : RowAt::kAtOnce;
  if (rows <= most && std::has_single_bit(static_cast<std::uint64_t>(rows)))
    return reduce_group(0, static_cast<int>(rows), out);
  LeafTree tree(k.pair(), itemsize(k.computed), m);
  const auto combine = [&](void* to, const void* other) {
    const void* both[2] = {to, other};
    k.pair()(both, to, m);
  };
  std::int64_t row = 0;
  for (; row + most <= rows; row += most) {
    reduce_group(row, most, tree.leaf());
    tree.add();
  }
  if (row < rows) {  // the remaining rows form one leaf: eight of them, and then the rest
    alignas(64) std::byte few[LeafTree::kLeafBytes], part[LeafTree::kLeafBytes];
    const bool octet = row + 8 <= rows;
    if (octet) {
      reduce_group(row, 8, tree.leaf());
      row += 8;
    }
    void* const to = octet ? few : tree.leaf();
    bool first = true;
    for (const int count : {4, 2, 1}) {
      if (!((rows - row) & count)) continue;
      reduce_group(row, count, first ? to : part);
      if (!first) combine(to, part);
      first = false;
      row += count;
    }
    if (octet && !first) combine(tree.leaf(), few);
    tree.add();
  }
  tree.finish(out);
}

// Reduces the first m elements of each row of in[rows, stride] to out[m].
void reduce_rows(const Kernels& k, const std::byte* in, std::int64_t rows, std::int64_t stride,
                 std::int64_t m, void* out) {
  reduce_rows(k, EvenRows{in, stride * itemsize(k.dtype)}, rows, m, out);
}

// Reduces in[reduced, inner] to out[inner] of the computed dtype; inner > 1. Several narrow rows
// are treated as one wide row, whose parts are combined at the end.
void reduce_columns(const Kernels& k, const std::byte* in, std::int64_t reduced, std::int64_t inner,
                    std::byte* out) {
  const std::int64_t leaf = LeafTree::kLeafBytes / itemsize(k.computed);
  const std::int64_t size = itemsize(k.computed);
  if (inner >= kNarrow || reduced < 32) {
    for (std::int64_t j = 0; j < inner; j += leaf) {
      reduce_rows(k, in + j * itemsize(k.dtype), reduced, inner, std::min(leaf, inner - j),
                  out + j * size);
    }
    return;
  }
  const auto fitting = static_cast<std::uint64_t>(std::min(leaf / inner, reduced / 8));
  std::int64_t joined = static_cast<std::int64_t>(std::bit_floor(fitting));
  const std::int64_t wide_rows = reduced / joined, rest = reduced % joined;
  alignas(64) std::byte wide[LeafTree::kLeafBytes];
  reduce_rows(k, in, wide_rows, joined * inner, joined * inner, wide);
  while (joined > 1) {
    joined /= 2;
    const void* both[2] = {wide, wide + joined * inner * size};
    k.pair()(both, wide, joined * inner);
  }
  if (rest > 0) {
    alignas(64) std::byte last[LeafTree::kLeafBytes];
    reduce_rows(k, in + (reduced - rest) * inner * itemsize(k.dtype), rest, inner, inner, last);
    const void* both[2] = {wide, last};
    k.pair()(both, out, inner);
  } else {
    std::memcpy(out, wide, static_cast<std::size_t>(inner * size));
  }
}

void reduce(Reduction op, const Kernels& k, const void* in, void* out, std::int64_t outer,
            std::int64_t reduced, std::int64_t inner) {
  const std::int64_t size = itemsize(k.dtype);
  if (outer * inner <= 0) return;
  if (reduced == 0) {
    std::uint64_t identity;
    reduce_identity(op, k.dtype, &identity);
    return fill(out, &identity, static_cast<int>(size), outer * inner);
  }
  if (reduced == 1) {
    if (in != out) std::memcpy(out, in, static_cast<std::size_t>(outer * inner * size));
    return;
  }
  const std::byte* a = static_cast<const std::byte*>(in);
  std::byte* o = static_cast<std::byte*>(out);
  if (!k.narrow) {
    if (inner == 1) return reduce_lines(k, a, outer, reduced, o);
    for (std::int64_t i = 0; i < outer; ++i, a += reduced * inner * size, o += inner * size)
      reduce_columns(k, a, reduced, inner, o);
    return;
  }
  // Half types: rows of results are computed in f32, then rounded.
  constexpr std::int64_t kBlock = 512;
  alignas(64) float results[kBlock];
  if (inner == 1) {
    for (std::int64_t i = 0; i < outer; i += kBlock) {
      const std::int64_t m = std::min(kBlock, outer - i);
      reduce_lines(k, a + i * reduced * size, m, reduced, reinterpret_cast<std::byte*>(results));
      k.narrow(results, o + i * size, m);
    }
    return;
  }
  for (std::int64_t i = 0; i < outer; ++i, a += reduced * inner * size, o += inner * size) {
    if (inner < kNarrow) {
      reduce_columns(k, a, reduced, inner, reinterpret_cast<std::byte*>(results));
      k.narrow(results, o, inner);
      continue;
    }
    for (std::int64_t j = 0; j < inner; j += kBlock) {
      const std::int64_t m = std::min(kBlock, inner - j);
      reduce_rows(k, a + j * size, reduced, inner, m, results);
      k.narrow(results, o + j * size, m);
    }
  }
}

template <Reduction op, DType dtype>
void kernel(const void* in, void* out, std::int64_t outer, std::int64_t reduced,
            std::int64_t inner) {
  static const Kernels kernels = find_kernels(op, dtype);
  reduce(op, kernels, in, out, outer, reduced, inner);
}

template <int... both>
ReduceFn find(Reduction op, DType dtype, std::integer_sequence<int, both...>) {
  static constexpr std::array<ReduceFn, sizeof...(both)> table = {
      kernel<static_cast<Reduction>(both / kDTypeCount),
             static_cast<DType>(both % kDTypeCount)>...};
  return table[static_cast<std::size_t>(op) * kDTypeCount + static_cast<std::size_t>(dtype)];
}

[[noreturn]] void throw_no_kernel(const char* what, Reduction op, DType dtype) {
  throw TypeError(std::string(what) + ": reduction " + to_string(op) + " of " + to_string(dtype) +
                  " does not exist; cast to a dtype that has it first");
}

Kernels existing_kernels(const char* what, Reduction op, DType dtype) {
  const Kernels k = find_kernels(op, dtype);
  if (!k.run) throw_no_kernel(what, op, dtype);
  return k;
}

}  // namespace

ReduceFn reduce_kernel(Reduction op, DType dtype) {
  if (!run_kernel(op, reduce_partial_dtype(dtype))) return nullptr;
  return find(op, dtype, std::make_integer_sequence<int, kReductionCount * kDTypeCount>{});
}

void reduce_identity(Reduction op, DType dtype, void* out) {
  const Kernels k = existing_kernels("reduce_identity", op, dtype);
  if (!k.narrow) return write_identity(op, dtype, out);
  float identity;
  write_identity(op, k.computed, &identity);
  k.narrow(&identity, out, 1);
}

void reduce_to_partials(Reduction op, DType dtype, const void* in, void* out, std::int64_t outer,
                        std::int64_t reduced, std::int64_t inner) {
  const Kernels k = existing_kernels("reduce_to_partials", op, dtype);
  if (!k.widen || outer * inner <= 0) return reduce(op, k, in, out, outer, reduced, inner);
  if (reduced == 0) return reduce(op, find_kernels(op, k.computed), in, out, outer, 0, inner);
  const std::byte* a = static_cast<const std::byte*>(in);
  std::byte* o = static_cast<std::byte*>(out);
  if (inner == 1) return reduce_lines(k, a, outer, reduced, o);
  for (std::int64_t i = 0; i < outer; ++i) {
    reduce_columns(k, a, reduced, inner, o);
    a += reduced * inner * itemsize(dtype);
    o += inner * itemsize(k.computed);
  }
}

void reduce_some_columns(Reduction op, DType dtype, const void* in, void* out, std::int64_t reduced,
                         std::int64_t inner, std::int64_t begin, std::int64_t end) {
  const Kernels k = existing_kernels("reduce_some_columns", op, dtype);
  const std::int64_t leaf = LeafTree::kLeafBytes / itemsize(k.computed);
  const std::byte* const a = static_cast<const std::byte*>(in);
  std::byte* const o = static_cast<std::byte*>(out);
  alignas(64) std::byte results[LeafTree::kLeafBytes];
  for (std::int64_t j = begin; j < end; j += leaf) {
    const std::int64_t m = std::min(leaf, end - j);
    std::byte* const to = o + j * itemsize(dtype);
    reduce_rows(k, a + j * itemsize(dtype), reduced, inner, m, k.narrow ? results : to);
    if (k.narrow) k.narrow(results, to, m);
  }
}

bool reduces_rows_apart(std::int64_t reduced, std::int64_t inner) {
  return reduced > 0 && inner > 1 && (inner >= kNarrow || reduced < 32);
}

void reduce_rows_apart(Reduction op, DType dtype, const void* const* rows, void* out,
                       std::int64_t outer, std::int64_t reduced, std::int64_t inner) {
  const Kernels k = existing_kernels("reduce_rows_apart", op, dtype);
  const std::int64_t leaf = LeafTree::kLeafBytes / itemsize(k.computed), size = itemsize(dtype);
  const std::int64_t row_bytes = std::min(inner, leaf) * size;
  const std::int64_t ahead = std::clamp<std::int64_t>(4096 / row_bytes, 8, 64);
  alignas(64) std::byte results[LeafTree::kLeafBytes];
  std::byte* to = static_cast<std::byte*>(out);
  for (std::int64_t i = 0; i < outer; ++i) {
    const std::int64_t first = i * reduced, left = (outer - i) * reduced;
    if (reduced == 1) {
      std::memcpy(to, rows[first], static_cast<std::size_t>(inner * size));
      to += inner * size;
      continue;
    }
    for (std::int64_t j = 0; j < inner; j += leaf) {
      const std::int64_t m = std::min(leaf, inner - j);
      const ApartRows apart{rows + first, left, j * size, m * size, ahead};
      reduce_rows(k, apart, reduced, m, k.narrow ? results : to);
      if (k.narrow) k.narrow(results, to, m);
      to += m * size;
    }
  }
}

void reduce_blocks(Reduction op, DType dtype, const void* in, std::int64_t n, std::int64_t begin,
                   std::int64_t end, void* partials) {
  const Kernels k = existing_kernels("reduce_blocks", op, dtype);
  for (std::int64_t b = begin; b < end; ++b) {
    reduce_contiguous(k, static_cast<const std::byte*>(in) + b * kReduceBlock * itemsize(dtype),
                      std::min(kReduceBlock, n - b * kReduceBlock),
                      static_cast<std::byte*>(partials) + b * itemsize(k.computed));
  }
}

void reduce_partials(Reduction op, DType dtype, const void* partials, std::int64_t count,
                     void* out) {
  const Kernels k = existing_kernels("reduce_partials", op, dtype);
  if (count <= 0) return reduce_identity(op, dtype, out);
  const std::int64_t size = itemsize(k.computed);
  ElementTree tree(k.pair());
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(tree.next(), static_cast<const std::byte*>(partials) + i * size,
                static_cast<std::size_t>(size));
    tree.add();
  }
  if (k.narrow)
    k.narrow(tree.finish(), out, 1);
  else
    std::memcpy(out, tree.finish(), static_cast<std::size_t>(size));
}

}  // namespace shmap::cpu
