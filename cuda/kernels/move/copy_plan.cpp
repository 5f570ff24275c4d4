#include "cuda/kernels/move/copy_plan.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace shmap::cuda {
namespace {

void add_dim(CopyPlan& plan, std::int64_t extent, std::int64_t dst, std::int64_t src) {
  plan.extent[plan.rank] = extent;
  plan.dst_stride[plan.rank] = dst;
  plan.src_stride[plan.rank] = src;
  ++plan.rank;
}

// Sorts dims by the stride of dst, so that neighbouring threads write neighbouring items.
void sort_dims(CopyPlan& plan) {
  for (int i = 1; i < plan.rank; ++i) {
    for (int d = i; d > 0 && std::abs(plan.dst_stride[d]) < std::abs(plan.dst_stride[d - 1]); --d) {
      std::swap(plan.extent[d], plan.extent[d - 1]);
      std::swap(plan.dst_stride[d], plan.dst_stride[d - 1]);
      std::swap(plan.src_stride[d], plan.src_stride[d - 1]);
    }
  }
}

void join_dims(CopyPlan& plan) {
  int kept = 0;
  for (int d = 1; d < plan.rank; ++d) {
    if (plan.dst_stride[d] == plan.extent[kept] * plan.dst_stride[kept] &&
        plan.src_stride[d] == plan.extent[kept] * plan.src_stride[kept]) {
      plan.extent[kept] *= plan.extent[d];
    } else {
      ++kept;
      plan.extent[kept] = plan.extent[d];
      plan.dst_stride[kept] = plan.dst_stride[d];
      plan.src_stride[kept] = plan.src_stride[d];
    }
  }
  plan.rank = std::min(plan.rank, kept + 1);
}

// True if every address of the copy and the length of its rows are multiples of `bytes`.
bool allows(const CopyPlan& plan, std::int64_t bytes) {
  std::uint64_t all = reinterpret_cast<std::uintptr_t>(plan.src) |
                      reinterpret_cast<std::uintptr_t>(plan.dst) |
                      static_cast<std::uint64_t>(plan.extent[0] * plan.itemsize);
  for (int d = 1; d < plan.rank; ++d) {
    all |= static_cast<std::uint64_t>(plan.dst_stride[d]) |
           static_cast<std::uint64_t>(plan.src_stride[d]);
  }
  return all % static_cast<std::uint64_t>(bytes) == 0;
}

// Where rows are contiguous on both sides, wider items can be used.
void widen_items(CopyPlan& plan) {
  if (plan.rank == 0 || plan.dst_stride[0] != plan.itemsize || plan.src_stride[0] != plan.itemsize)
    return;
  for (int wide = 16; wide > plan.itemsize; wide /= 2) {
    if (!allows(plan, wide)) continue;
    plan.extent[0] = plan.extent[0] * plan.itemsize / wide;
    plan.itemsize = wide;
    plan.dst_stride[0] = plan.src_stride[0] = wide;
    break;
  }
  if (plan.extent[0] == 1) {  // a row of one item: the next dim is the innermost
    for (int d = 1; d < plan.rank; ++d) {
      plan.extent[d - 1] = plan.extent[d];
      plan.dst_stride[d - 1] = plan.dst_stride[d];
      plan.src_stride[d - 1] = plan.src_stride[d];
    }
    --plan.rank;
  }
}

}  // namespace

CopyPlan plan_copy(const StridedCopy& copy) {
  CopyPlan plan;
  plan.src = static_cast<const char*>(copy.src);
  plan.dst = static_cast<char*>(copy.dst);
  // Uses the widest access that the alignment of every item allows; the pieces of an item become
  // another dim.
  std::uint64_t all = reinterpret_cast<std::uintptr_t>(copy.src) |
                      reinterpret_cast<std::uintptr_t>(copy.dst) |
                      static_cast<std::uint64_t>(copy.itemsize) | 16u;
  for (int d = 0; d < copy.rank; ++d) {
    if (copy.extent[d] == 1) continue;
    all |= static_cast<std::uint64_t>(copy.dst_stride[d]) |
           static_cast<std::uint64_t>(copy.src_stride[d]);
  }
  plan.itemsize = static_cast<int>(all & (~all + 1));
  if (plan.itemsize < copy.itemsize)
    add_dim(plan, copy.itemsize / plan.itemsize, plan.itemsize, plan.itemsize);
  for (int d = copy.rank - 1; d >= 0; --d) {
    if (copy.extent[d] != 1) add_dim(plan, copy.extent[d], copy.dst_stride[d], copy.src_stride[d]);
  }
  sort_dims(plan);
  join_dims(plan);
  widen_items(plan);
  for (int d = 0; d < plan.rank; ++d) plan.items *= plan.extent[d];
  return plan;
}

}  // namespace shmap::cuda
