// A strided copy in its simplest form, for the kernels.
#pragma once
#include <cstdint>

#include "cuda/kernels/move/copy.h"

namespace shmap::cuda {

struct CopyPlan {
  // One more dim than a copy has: items of an odd size are split into bytes.
  static constexpr int kMaxDims = kMaxRank + 1;
  // From the innermost dim (the smallest stride of dst) to the outermost; none has extent 1, and
  // dims that are adjacent on both sides are merged.
  int rank = 0;
  std::int64_t extent[kMaxDims];
  std::int64_t dst_stride[kMaxDims];  // bytes
  std::int64_t src_stride[kMaxDims];
  int itemsize = 1;  // 1, 2, 4, 8 or 16: as wide as sizes and alignment allow
  std::int64_t items = 1;
  const char* src = nullptr;
  char* dst = nullptr;

  // True if the copy is one contiguous row of bytes.
  bool contiguous() const {
    return rank == 0 || (rank == 1 && dst_stride[0] == itemsize && src_stride[0] == itemsize);
  }
};

CopyPlan plan_copy(const StridedCopy& copy);

}  // namespace shmap::cuda
