#include "core/ops/dot_layout.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace shmap {

namespace {

// Several dims seen as one dim, with its size and its stride. `whole` is false where they have no
// common stride. A dim of size 1 has stride 0, which fits any other.
struct Merged {
  std::int64_t size = 1;
  std::int64_t stride = 0;
  bool whole = true;
};

Merged merge(const Shape& shape, const std::int64_t* strides, const IntList& dims,
             std::size_t first = 0) {
  Merged m;
  for (std::size_t i = dims.size(); i-- > first;) {
    const auto d = static_cast<std::size_t>(dims[i]);
    if (shape[d] == 1) continue;
    if (m.stride == 0) {
      m.stride = strides[d];
    } else if (strides[d] != m.stride * m.size) {
      m.whole = false;
    }
    m.size *= shape[d];
  }
  return m;
}

// The contracted pairs in the memory order of the left operand.
IntList by_lhs_order(const DotParams& p, bool of_rhs) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (std::size_t i = 0; i < p.lhs_contracting.size(); ++i)
    pairs.emplace_back(p.lhs_contracting[i], p.rhs_contracting[i]);
  std::sort(pairs.begin(), pairs.end());
  IntList out;
  for (const auto& [l, r] : pairs) out.push_back(of_rhs ? r : l);
  return out;
}

}  // namespace

DotSide::DotSide(const ShapedArray& type, const IntList& free, const IntList& contracted,
                 const IntList& batch)
    : item(itemsize(type.dtype())),
      shape_(type.dims()),
      free_(free),
      contracted_(contracted),
      batch_(batch) {
  std::int64_t s = 1;
  for (std::size_t d = shape_.size(); d-- > 0;) {
    strides_[d] = s;
    s *= shape_[d];
  }
  const Merged f = merge(shape_, strides_, free_), c = merge(shape_, strides_, contracted_);
  rows = f.size;
  inner = c.size;
  const bool unit_inner = c.stride == 1 || inner == 1, unit_rows = f.stride == 1 || rows == 1;
  if (!f.whole || !c.whole || (!unit_inner && !unit_rows)) {
    packed = true;
    ld = inner;
  } else if (unit_inner && (f.stride == 0 || f.stride >= inner)) {
    ld = std::max<std::int64_t>(f.stride, std::max<std::int64_t>(inner, 1));
  } else if (unit_rows && (c.stride == 0 || c.stride >= rows)) {
    transposed = true;
    ld = std::max<std::int64_t>(c.stride, std::max<std::int64_t>(rows, 1));
  } else {
    packed = true;
    ld = std::max<std::int64_t>(inner, 1);
  }
}

std::int64_t DotSide::offset(std::int64_t b) const {
  std::int64_t at = 0;
  for (std::size_t i = batch_.size(); i-- > 0;) {
    const auto d = static_cast<std::size_t>(batch_[i]);
    const std::int64_t extent = shape_.begin()[d];  // [] counts negative dims from the end
    at += b % extent * strides_[d];
    b /= extent;
  }
  return at;
}

bool DotSide::merges(int dims, std::int64_t* stride) const {
  const Merged m = merge(shape_, strides_, batch_, batch_.size() - static_cast<std::size_t>(dims));
  *stride = m.stride;
  return m.whole;
}

void DotSide::add(StridedCopy& copy, const IntList& dims) const {
  for (std::int64_t d : dims) {
    copy.extent[copy.rank] = shape_[static_cast<std::size_t>(d)];
    copy.src_stride[copy.rank++] = strides_[d] * item;
  }
  row_major_strides(copy.rank, copy.extent, item, copy.dst_stride);
}

StridedCopy DotSide::item_copy() const {
  StridedCopy copy;
  copy.itemsize = item;
  add(copy, free_);
  add(copy, contracted_);
  return copy;
}

StridedCopy DotSide::whole_copy() const {
  StridedCopy copy;
  copy.itemsize = item;
  add(copy, batch_);
  add(copy, free_);
  add(copy, contracted_);
  return copy;
}

DotLayout::DotLayout(Types in, const DotParams& p)
    : lhs(in[0], free_dims(in[0].rank(), p.lhs_contracting, p.lhs_batch), by_lhs_order(p, false),
          p.lhs_batch),
      rhs(in[1], free_dims(in[1].rank(), p.rhs_contracting, p.rhs_batch), by_lhs_order(p, true),
          p.rhs_batch) {
  for (std::int64_t d : p.lhs_batch)
    batch_shape_.push_back(in[0].dims()[static_cast<std::size_t>(d)]);
  batch = batch_shape_.num_elements();
}

DotBatch DotLayout::groups() const {
  DotBatch best{batch, 1, 0, 0};
  for (int dims = 1; dims <= static_cast<int>(batch_shape_.size()); ++dims) {
    std::int64_t left = lhs.rows * lhs.inner, right = rhs.rows * rhs.inner;
    if (!lhs.packed && !lhs.merges(dims, &left)) break;
    if (!rhs.packed && !rhs.merges(dims, &right)) break;
    std::int64_t count = 1;
    for (int i = 0; i < dims; ++i)
      count *= batch_shape_[batch_shape_.size() - 1 - static_cast<std::size_t>(i)];
    if (count == 0) break;
    best = {batch / count, count, left, right};
  }
  return best;
}

}  // namespace shmap
