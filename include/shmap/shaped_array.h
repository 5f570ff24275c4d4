// The type of a value: its dtype, its shape, and the mesh axes over which it may vary, printed as
// f32[2,8]{i,j} (JEP 17111).
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
// The names and sizes of a mesh's axes, in mesh order. Environments are interned and never freed:
// two equal environments are the same object.
struct AxisEnv {
  std::vector<std::string> names;
  std::vector<std::int64_t> sizes;
  int find(std::string_view name) const;  // -1 where there is no such axis
  static const AxisEnv* intern(const std::vector<std::string>& names,
                               const std::vector<std::int64_t>& sizes);
  static const AxisEnv* empty();
  // An environment that has the axes of both a and b: a or b itself where it has all of them,
  // otherwise one with the axes of a followed by the axes that only b has.
  static const AxisEnv* join(const AxisEnv* a, const AxisEnv* b);
};
}  // namespace detail

// A set of axes of one environment, as a bit mask in the order of the environment's axes. Sets of
// different environments (a type written by hand has an environment of its own) are compared and
// joined by the names of the axes.
class AxisSet {
 public:
  AxisSet() = default;
  AxisSet(const detail::AxisEnv* env, std::uint32_t mask)
      : env_(mask ? env : nullptr), mask_(mask) {}
  bool empty() const { return mask_ == 0; }
  // The set as a mask in the order of `env`. TypeError where env lacks one of the axes.
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
  // The axes of a that are not in b.
  friend AxisSet operator-(const AxisSet& a, const AxisSet& b) {
    return a.is_like(b) ? AxisSet(a.env_, a.mask_ & ~b.mask_) : without(a, b);
  }
  // Equal where both sets have the same names; their environments may be different objects.
  friend bool operator==(const AxisSet& a, const AxisSet& b);

 private:
  // Whether equal bits of the two masks mean equal axes.
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

  const Shape& dims() const { return shape_; }  // shape() without a copy
  int rank() const { return static_cast<int>(shape_.size()); }
  // True for the type of a host scalar: where dtypes are promoted, a weak dtype gives way to that
  // of an array.
  bool weak() const { return weak_; }
  const AxisSet& axes() const { return vma_; }
  std::int64_t size() const {
    // The shape was checked when the type was made, so that the product fits. The loop is unsigned,
    // since the product of extents before a 0 may overflow.
    std::uint64_t n = 1;
    for (std::int64_t e : shape_) n *= static_cast<std::uint64_t>(e);
    return static_cast<std::int64_t>(n);
  }
  std::int64_t nbytes() const { return size() * itemsize(dtype_); }
  ShapedArray with_axes(AxisSet vma) const { return ShapedArray(shape_, dtype_, weak_, vma); }

  // Compares dtype, shape and variance. Whether the types are weak makes no difference.
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
