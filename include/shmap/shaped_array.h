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
  // One that has the axes of both: a or b where that does, else a's and then those that b has more.
  static const AxisEnv* join(const AxisEnv* a, const AxisEnv* b);
};
}  // namespace detail

// A set of axes of one environment, as a bit mask in its order. Sets of several environments (a
// type written by hand has one of its own) are compared and joined by the axes' names.
class AxisSet {
 public:
  AxisSet() = default;
  AxisSet(const detail::AxisEnv* env, std::uint32_t mask)
      : env_(mask ? env : nullptr), mask_(mask) {}
  bool empty() const { return mask_ == 0; }
  // The bits that the axes have in `env`. TypeError where it lacks one of them.
  std::uint32_t mask_in(const detail::AxisEnv& env) const {
    return mask_ == 0 || env_ == &env ? mask_ : translated(env);
  }
  const detail::AxisEnv* env() const { return env_; }  // null where the set is empty
  bool contains(const AxisSet& o) const {
    return is_like(o) ? (o.mask_ & ~mask_) == 0 : (o - *this).empty();
  }
  std::vector<std::string> names() const;  // in mesh order
  friend AxisSet operator|(const AxisSet& a, const AxisSet& b) {
    return a.is_like(b) ? AxisSet(a.env_ ? a.env_ : b.env_, a.mask_ | b.mask_) : joined(a, b);
  }
  // The axes of a that b has not.
  friend AxisSet operator-(const AxisSet& a, const AxisSet& b) {
    return a.is_like(b) ? AxisSet(a.env_, a.mask_ & ~b.mask_) : without(a, b);
  }
  // The same names; the environments need not be the same object.
  friend bool operator==(const AxisSet& a, const AxisSet& b);

 private:
  // Whether the bits of both mean the same axes.
  bool is_like(const AxisSet& o) const { return env_ == o.env_ || mask_ == 0 || o.mask_ == 0; }
  std::uint32_t translated(const detail::AxisEnv& env) const;
  static AxisSet joined(const AxisSet& a, const AxisSet& b);
  static AxisSet without(const AxisSet& a, const AxisSet& b);

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
