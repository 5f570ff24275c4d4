#include "core/cpu/kernels/reduce/combine.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>

#include "core/base/float_format.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/reduce/reduce_loops.h"
#include "core/cpu/kernels/vector/non_temporal.h"
#include "shmap/error.h"

namespace shmap::cpu {
namespace {

// The constants of one call, and the p leaves of the tree. A leaf is one rank, or two ranks folded.
class Combine {
 public:
  Combine(Reduction op, DType dtype, const void* const* ranks, int n)
      : ranks_(ranks),
        n_(n),
        p_(static_cast<int>(std::bit_floor(static_cast<unsigned>(n)))),
        group_(std::min(p_, 8)),
        half_(is_half(dtype)),
        itemsize_(itemsize(dtype)),
        computed_(half_ ? DType::f32 : dtype),
        pair_(tree_kernel(op, computed_, 2)),
        tree_(group_ > 1 ? tree_kernel(op, computed_, group_) : nullptr),
        widen_(half_ ? cast_kernel(dtype, DType::f32) : nullptr),
        narrow_(half_ ? cast_kernel(DType::f32, dtype) : nullptr) {}

  bool exists() const { return pair_ != nullptr; }

  std::int64_t block() const { return LeafTree::kLeafBytes / itemsize(computed_); }

  // Writes elements at … at + m - 1, m <= block(), to `out`, an array of the dtype. All reads of
  // these elements of the ranks come before the first write.
  void run_block(void* out, std::int64_t at, std::int64_t m) const {
    std::byte(*const folded)[LeafTree::kLeafBytes] = reduce_scratch().group;
    alignas(64) std::byte result[LeafTree::kLeafBytes];
    void* to = half_ ? static_cast<void*>(result) : out;
    if (p_ <= 8) {
      combine_group(0, at, m, folded, to);
    } else {
      LeafTree tree(pair_, itemsize(computed_), m);
      for (int first = 0; first < p_; first += group_) {
        combine_group(first, at, m, folded, tree.leaf());
        tree.add();
      }
      tree.finish(to);
    }
    if (half_) narrow_(result, out, m);
  }

 private:
  const std::byte* rank(int r, std::int64_t at) const {
    return static_cast<const std::byte*>(ranks_[r]) + at * itemsize_;
  }

  void combine_group(int first, std::int64_t at, std::int64_t m,
                     std::byte (*folded)[LeafTree::kLeafBytes], void* out) const {
    const void* leaves[8];
    for (int j = 0; j < group_; ++j) leaves[j] = leaf(first + j, at, m, folded[j]);
    if (tree_)
      tree_(leaves, out, m);
    else if (leaves[0] != out)
      std::memmove(out, leaves[0], static_cast<std::size_t>(m * itemsize(computed_)));
  }

  const void* leaf(int r, std::int64_t at, std::int64_t m, std::byte* buffer) const {
    const bool two = r + p_ < n_;
    if (!half_ && !two) return rank(r, at);
    alignas(64) std::byte second[LeafTree::kLeafBytes];
    const void* both[2] = {rank(r, at), two ? rank(r + p_, at) : nullptr};
    if (half_) {
      widen_(both[0], buffer, m);
      both[0] = buffer;
      if (!two) return buffer;
      widen_(both[1], second, m);
      both[1] = second;
    }
    pair_(both, buffer, m);
    return buffer;
  }

  const void* const* ranks_;
  const int n_, p_, group_;
  const bool half_;
  const int itemsize_;
  const DType computed_;
  const TreeFn pair_, tree_;
  const CastFn widen_, narrow_;
};

// Returns the kernel that combines all ranks at once, in place, or nullptr if there is none.
TreeFn direct_kernel(Reduction op, DType dtype, int n) {
  const bool direct = n == 2 || n == 4 || n == 8;
  return direct && reduce_partial_dtype(dtype) == dtype ? tree_kernel(op, dtype, n) : nullptr;
}

}  // namespace

void combine_ranks(Reduction op, DType dtype, const void* const* ranks, int n, void* out,
                   std::int64_t begin, std::int64_t end, bool non_temporal) {
  const std::int64_t size = itemsize(dtype);
  const TreeFn direct = direct_kernel(op, dtype, n);
  const auto run_direct = [&](void* to, std::int64_t at, std::int64_t m) {
    const void* leaves[8];
    for (int r = 0; r < n; ++r) leaves[r] = static_cast<const std::byte*>(ranks[r]) + at * size;
    direct(leaves, to, m);
  };
  if (direct != nullptr && !non_temporal) {
    if (begin < end) run_direct(static_cast<std::byte*>(out) + begin * size, begin, end - begin);
    return;
  }
  const Combine combine(op, dtype, ranks, n);
  if (!combine.exists()) {
    throw TypeError("combine_ranks: reduction " + std::to_string(static_cast<int>(op)) + " of " +
                    to_string(dtype) + " does not exist; cast to a dtype that has it first");
  }
  const auto out_at = [&](std::int64_t at) { return static_cast<std::byte*>(out) + at * size; };
  alignas(64) std::byte staged[LeafTree::kLeafBytes];
  // Non-temporal stores need whole cache lines: the first block ends at a line's end.
  const auto address = reinterpret_cast<std::uintptr_t>(out_at(begin));
  const std::int64_t head = static_cast<std::int64_t>(-address % 64) / size;
  std::int64_t m = non_temporal && head ? head : combine.block();
  for (std::int64_t at = begin; at < end; at += m, m = combine.block()) {
    m = std::min(m, end - at);
    void* to = non_temporal ? static_cast<void*>(staged) : out_at(at);
    if (direct != nullptr)
      run_direct(to, at, m);
    else
      combine.run_block(to, at, m);
    if (non_temporal) store_non_temporal(out_at(at), staged, m * size);
  }
  if (non_temporal) non_temporal_fence();
}

}  // namespace shmap::cpu
