// How a dot_general is a batch of matrix products: which dims of an operand are one dim of a
// matrix, as it lies in memory, and what has to be copied into another order first.
#pragma once
#include <cstdint>

#include "core/ops/dot.h"
#include "core/runtime/device_ops.h"

namespace shmap {

// One operand as a matrix [free, contracted] for each batch item. Strides and offsets count
// elements.
class DotSide {
 public:
  DotSide(const ShapedArray& type, const IntList& free, const IntList& contracted,
          const IntList& batch);

  std::int64_t rows = 1;    // the free dims as one
  std::int64_t inner = 1;   // the contracted ones
  bool packed = false;      // cannot be read where it lies
  bool transposed = false;  // lies as [contracted, free]
  std::int64_t ld = 1;      // from one stored row to the next, of a copy where packed
  int item = 1;             // bytes of an element

  // Where batch item b begins.
  std::int64_t offset(std::int64_t b) const;
  // Of the last `dims` batch dims: whether they lie one within the other, as one dim of stride
  // `*stride` (0: of size 1).
  bool merges(int dims, std::int64_t* stride) const;
  // The copy of one item to [free, contracted]; src and dst are the caller's.
  BoxCopy item_copy() const;
  // The copy of all of them, to [batch, free, contracted].
  BoxCopy whole_copy() const;

 private:
  void add(BoxCopy& copy, const IntList& dims) const;

  Shape shape_;
  std::int64_t strides_[kMaxRank];
  IntList free_, contracted_, batch_;
};

// Batch items in `calls` groups of `count`, whose matrices lie one stride apart each.
struct DotBatch {
  std::int64_t calls = 1, count = 1;
  std::int64_t lhs_stride = 0, rhs_stride = 0;
};

// The result is [batch][lhs.rows][rhs.rows], contiguous.
struct DotLayout {
  DotLayout(Types in, const DotParams& params);

  DotSide lhs, rhs;
  std::int64_t batch = 1;

  std::int64_t m() const { return lhs.rows; }
  std::int64_t n() const { return rhs.rows; }
  std::int64_t k() const { return lhs.inner; }
  bool packs() const { return lhs.packed || rhs.packed; }
  // The largest groups of items one stride apart. A packed operand is one of the whole copy.
  DotBatch groups() const;

 private:
  Shape batch_shape_;
};

}  // namespace shmap
