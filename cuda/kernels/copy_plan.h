// A strided copy brought into its simplest form, which the kernels take.
#pragma once
#include <cstdint>

#include "cuda/kernels/copy.h"

namespace shmap::cuda {

struct CopyPlan {
  // One dim more than a copy has: odd items are split into bytes.
  static constexpr int kMaxDims = kMaxRank + 1;
  // From the innermost (the smallest stride of dst) to the outermost, none of extent 1, neighbours
  // joined where both sides allow it.
  int rank = 0;
  std::int64_t extent[kMaxDims];
  std::int64_t dst_stride[kMaxDims];  // bytes
  std::int64_t src_stride[kMaxDims];
  int itemsize = 1;  // 1, 2, 4, 8 or 16, as wide as contents and alignment allow
  std::int64_t items = 1;
  const char* src = nullptr;
  char* dst = nullptr;

  // A row of bytes: nothing is strided.
  bool contiguous() const {
    return rank == 0 || (rank == 1 && dst_stride[0] == itemsize && src_stride[0] == itemsize);
  }
};

CopyPlan plan_copy(const StridedCopy& copy);

}  // namespace shmap::cuda
