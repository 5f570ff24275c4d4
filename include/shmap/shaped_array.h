// The type of a value: dtype, shape, and the mesh axes over which it may vary: f32[2,8]{i,j} (JEP
// 17111).
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "shmap/axes.h"
#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap {

namespace detail {
// The named axes of a mesh in mesh order; interned, so that equal environments are one object that
// lives for ever.
struct AxisEnv {
  std::vector<std::string> names;
  std::vector<std::int64_t> sizes;
  int find(std::string_view name) const;  // -1 where there is no such axis
  static const AxisEnv* intern(const std::vector<std::string>& names,
                               const std::vector<std::int64_t>& sizes);
  static const AxisEnv* empty();
};
}  // namespace detail

// A set of axes of one environment, as a bit mask in mesh order.
class AxisSet {
 public:
  AxisSet() = default;
  AxisSet(const detail::AxisEnv* env, std::uint32_t mask)
      : env_(mask ? env : nullptr), mask_(mask) {}
  bool empty() const { return mask_ == 0; }
  std::uint32_t mask() const { return mask_; }
  const detail::AxisEnv* env() const { return env_; }
  bool contains(const AxisSet& o) const { return (o.mask_ & ~mask_) == 0; }
  std::vector<std::string> names() const;  // in mesh order
  friend AxisSet operator|(const AxisSet& a, const AxisSet& b) {
    return AxisSet(a.env_ ? a.env_ : b.env_, a.mask_ | b.mask_);
  }
  // The same names; the environments need not be the same object.
  friend bool operator==(const AxisSet& a, const AxisSet& b);

 private:
  const detail::AxisEnv* env_ = nullptr;
  std::uint32_t mask_ = 0;
};

class ShapedArray {
 public:
  ShapedArray() = default;
  ShapedArray(Shape shape, DType dtype, Axes vma = {});
  ShapedArray(const Shape& shape, DType dtype, bool weak, AxisSet vma)
      : shape_(shape), dtype_(dtype), weak_(weak), vma_(vma) {}
  Shape shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  std::vector<std::string> vma() const { return vma_.names(); }

  const Shape& dims() const { return shape_; }  // as shape(), without a copy
  int rank() const { return static_cast<int>(shape_.size()); }
  bool weak() const {
    return weak_;
  }  // a host scalar's type, which gives way to an array's in promotion
  const AxisSet& axes() const { return vma_; }
  std::int64_t size() const {
    // The shape was checked when it was made. Unsigned, since extents beside a 0 may multiply to
    // anything before it is met.
    std::uint64_t n = 1;
    for (std::int64_t e : shape_) n *= static_cast<std::uint64_t>(e);
    return static_cast<std::int64_t>(n);
  }
  std::int64_t nbytes() const { return size() * itemsize(dtype_); }
  ShapedArray with_axes(AxisSet vma) const { return ShapedArray(shape_, dtype_, weak_, vma); }

  // dtype, shape and variance; weakness is not part of it.
  friend bool operator==(const ShapedArray& a, const ShapedArray& b) {
    return a.dtype_ == b.dtype_ && a.shape_ == b.shape_ && a.vma_ == b.vma_;
  }
  friend std::ostream& operator<<(std::ostream& out, const ShapedArray& type);

 private:
  Shape shape_;
  DType dtype_ = DType::f32;
  bool weak_ = false;
  AxisSet vma_;
};
std::string to_string(const ShapedArray& type);  // "f32[2,8]{i,j}"

}  // namespace shmap
