// Divides boxes (hyper-rectangles) of arrays into runs of contiguous bytes, and copies from Fortran
// order to C order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "shmap/shape.h"
#include "shmap/slice.h"

namespace shmap::io {

// The contiguous runs of a box of an array in C order, each of run_bytes() bytes. A run covers the
// innermost dims that the box covers whole, and a range of one more dim.
class BoxRuns {
 public:
  BoxRuns(const Shape& shape, std::span<const Slice> box, int itemsize);
  bool empty() const { return run_bytes_ == 0; }
  std::int64_t run_bytes() const { return run_bytes_; }
  // Runs form rows of `row_runs` runs along the innermost dim that is not part of a run, `stride`
  // bytes apart; next() moves to the next row.
  std::int64_t stride() const { return stride_; }
  std::int64_t row_runs() const { return row_runs_; }
  std::int64_t offset() const { return offset_; }  // offset of the row's first run in the array
  bool next();                                     // false after the last row

 private:
  int outer_ = 0;  // dims walked by next()
  std::int64_t run_bytes_ = 0, stride_ = 0, row_runs_ = 1, offset_ = 0;
  std::int64_t extents_[kMaxRank], strides_[kMaxRank], index_[kMaxRank];
};

// ValueError naming `what` unless the box has a Slice for every dim, each within the shape.
void check_box(const Shape& shape, std::span<const Slice> box, const char* what);

// Copies a box of `extents` elements from src, contiguous in Fortran order, to dst, an array with
// strides `dst_strides` (in elements).
void copy_fortran_to_strided(const std::byte* src, std::byte* dst, const Shape& extents,
                             std::span<const std::int64_t> dst_strides, int itemsize);

}  // namespace shmap::io
