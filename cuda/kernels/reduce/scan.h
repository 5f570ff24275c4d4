// Cumulative operations on a GPU.
//
// The order of every result depends on the extents alone: the bits are the same in every run. Sums
// and products of floats are accumulated in f64; those of integers wrap.
#pragma once
#include <cstdint>

#include "core/base/reduction_ops.h"
#include "shmap/dtype.h"

namespace shmap::cuda {

// in[outer, len, inner], row-major -> out of the same shape: running results along `len`, from its
// end if `reverse`.
struct Scan {
  Cumulative op = Cumulative::cumsum;
  DType dtype = DType::f32;
  std::int64_t outer = 0, len = 0, inner = 1;
  bool reverse = false;
  const void* in = nullptr;
  void* out = nullptr;  // may be `in`
};

// Bytes of scratch for the totals of parts of long lines; does not depend on addresses.
std::int64_t scan_scratch(const Scan& s);
// Throws TypeError where the dtype has no such operation. `stream` is a cudaStream_t.
void scan(const Scan& s, void* scratch, void* stream);

}  // namespace shmap::cuda
