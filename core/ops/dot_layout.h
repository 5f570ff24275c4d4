// A dot_general as a batch of matrix products: which dims of an operand form a dim of a matrix,
// given its strides, and which operands must first be copied to another order.
#pragma once
#include <cstdint>

#include "core/ops/dot.h"
#include "core/runtime/device_ops.h"

namespace shmap {

// One operand as a matrix [free, contracted] for each batch item. Strides and offsets are in
// elements.
class DotSide {
 public:
  DotSide(const ShapedArray& type, const IntList& free, const IntList& contracted,
          const IntList& batch);

  std::int64_t rows = 1;    // the product of the free dims
  std::int64_t inner = 1;   // the product of the contracted dims
  bool packed = false;      // whether it must be copied, because its strides fit no matrix
  bool transposed = false;  // whether it is stored as [contracted, free]
  std::int64_t ld = 1;      // from one stored row to the next (of the copy, where packed)
  int item = 1;             // bytes of an element

  // The offset of batch item b.
  std::int64_t offset(std::int64_t b) const;
  // Whether the last `dims` batch dims are equivalent to one dim of stride `*stride` (0 where its
  // size is 1).
  bool merges(int dims, std::int64_t* stride) const;
  // The copy of one item to [free, contracted]; the caller sets src and dst.
  StridedCopy item_copy() const;
  // The copy of all items, to [batch, free, contracted].
  StridedCopy whole_copy() const;

 private:
  void add(StridedCopy& copy, const IntList& dims) const;

  Shape shape_;
  std::int64_t strides_[kMaxRank];
  IntList free_, contracted_, batch_;
};

// Batch items as `calls` groups of `count` items; the matrices of a group are one stride apart.
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
  // The largest groups of items that are one stride apart. A packed operand is read from the copy
  // of the whole.
  DotBatch groups() const;

 private:
  Shape batch_shape_;
};

}  // namespace shmap
