// The kernel of combine_ranks, for the .cu files of its domains. Op: an operation of
// cuda/kernels/embedded/reduction.h.
#pragma once
#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/embedded/reduction.h"
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/reduce/combine.h"
#include "cuda/kernels/reduce/combine_call.h"

namespace shmap::cuda {
namespace {

// Passed by value, in the kernel's parameters.
template <int capacity>
struct Ranks {
  const void* at[capacity];
};
struct Pieces {
  CombinedPiece at[kMaxPieces];
};

// Each `blockIdx.y` handles one piece.
template <class Op, class T, int count, int capacity>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const SHMAP_CONSTANT Ranks<capacity> ranks, int n, int leaves,
                   const SHMAP_CONSTANT Pieces pieces, std::int64_t rows, std::int64_t length,
                   std::int64_t stride, bool packed) {
  after_predecessor();
  using C = scalar::Compute<T>;
  T* const out = static_cast<T*>(pieces.at[blockIdx.y].out);
  const std::int64_t first = pieces.at[blockIdx.y].first;
  constexpr int kLevels = capacity <= 16 ? 3 : 7;  // quads of leaves: up to 2^(kLevels - 1)
  const std::int64_t packs = (length + count - 1) / count,
                     step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * packs;
       i += step) {
    const std::int64_t row = rows == 1 ? 0 : i / packs, begin = (i - row * packs) * count;
    const std::int64_t rest = length - begin, from = row * stride + first + begin;
    const auto load = [&](int rank) {
      const Source<T> source{static_cast<const T*>(ranks.at[rank]), {}, Operand::whole, {}};
      const Items<T, count> given = load_items<count>(source, from, rest, packed);
      Items<C, count> result;
      SHMAP_UNROLL
      for (int k = 0; k < count; ++k) result.item[k] = scalar::widen(given.item[k]);
      return result;
    };
    const auto fold = [](const Items<C, count>& a, const Items<C, count>& b) {
      Items<C, count> result;
      SHMAP_UNROLL
      for (int k = 0; k < count; ++k) result.item[k] = Op()(a.item[k], b.item[k]);
      return result;
    };
    const auto leaf = [&](int r) {
      return r + leaves < n ? fold(load(r), load(r + leaves)) : load(r);
    };
    // Four leaves are loaded at once. At each level the kernel keeps the subtree that waits for its
    // right neighbour; the leaf's number, which is the same in all threads, tells which subtree
    // that is.
    Items<C, count> left[kLevels], value = leaf(0);
    if (leaves == 2) value = fold(value, leaf(1));
    for (int first = 0; leaves > 2 && first < leaves; first += 4) {
      const Items<C, count> a = first == 0 ? value : leaf(first), b = leaf(first + 1);
      const Items<C, count> c = leaf(first + 2), d = leaf(first + 3);
      value = fold(fold(a, b), fold(c, d));
      bool climbs = true;
      SHMAP_UNROLL
      for (int level = 0; level < kLevels; ++level) {
        if (!climbs) continue;
        if ((first >> (level + 2) & 1) != 0) {
          value = fold(left[level], value);
        } else {
          left[level] = value;
          climbs = false;
        }
      }
    }
    T* const to = out + row * length + begin;
    Items<T, count> result;
    SHMAP_UNROLL
    for (int k = 0; k < count; ++k) result.item[k] = scalar::narrow<T>(value.item[k]);
    if (packed && rest >= count) {
      *reinterpret_cast<Items<T, count>*>(to) = result;
    } else {
      SHMAP_UNROLL
      for (int k = 0; k < count; ++k)
        if (k < rest) to[k] = result.item[k];
    }
  }
}

template <class Op, class T, int capacity>
void run_combine(const CombineCall& call) {
  // With many ranks a thread handles fewer elements at a time, so that waiting subtrees stay in
  // registers.
  constexpr int count = std::min(16 / static_cast<int>(sizeof(T)), capacity <= 16 ? 16 : 4);
  constexpr int bytes = count * static_cast<int>(sizeof(T));
  static_assert(kMaxRanks < 512);
  Ranks<capacity> ranks = {};
  bool packed = call.rows == 1 || (call.length % count == 0 && call.stride % count == 0);
  Pieces pieces = {};
  for (std::size_t p = 0; p < call.pieces.size(); ++p) {
    pieces.at[p] = call.pieces[p];
    packed = packed && aligned_to<bytes>(call.pieces[p].out) && call.pieces[p].first % count == 0;
  }
  for (int r = 0; r < call.n; ++r) {
    ranks.at[r] = call.ranks[r];
    packed = packed && aligned_to<bytes>(call.ranks[r]);
  }
  int leaves = 1;
  while (2 * leaves <= call.n) leaves *= 2;
  const std::int64_t packs = (call.length + count - 1) / count;
  dim3 grid = grid_for(call.rows * packs);
  grid.y = static_cast<unsigned>(call.pieces.size());
  launch("combine_ranks", combine_kernel<Op, T, count, capacity>, grid, dim3(kThreads), call.stream,
         ranks, call.n, leaves, pieces, call.rows, call.length, call.stride, packed);
}

template <class Op, class T>
void run_combine(const CombineCall& call) {
  if (call.n <= 16)
    run_combine<Op, T, 16>(call);
  else
    run_combine<Op, T, kMaxRanks>(call);
}

// Runs the reduction `op`, a row of that domain.
template <Domain domain, class T>
void combine_row(Reduction op, const CombineCall& call) {
#define SHMAP_CASE(name, its_domain, primitive) \
  if constexpr (Domain::its_domain == domain)   \
    if (op == Reduction::name) run_combine<primitive, T>(call);
  SHMAP_REDUCTIONS(SHMAP_CASE)
#undef SHMAP_CASE
}

}  // namespace
}  // namespace shmap::cuda
