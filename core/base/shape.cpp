#include "shmap/shape.h"

#include <ostream>

#include "shmap/error.h"

namespace shmap {

namespace detail {
void throw_rank_limit(std::size_t rank) {
  throw ValueError("an array of rank " + std::to_string(rank) +
                   " was asked for, and the limit is " + std::to_string(kMaxRank) +
                   " dims: merge dims with reshape");
}
void throw_no_such_extent(std::int64_t index, std::size_t count) {
  const std::string n = std::to_string(count);
  throw ValueError("extent " + std::to_string(index) + " of a shape that has " + n +
                   (count == 0 ? ": a scalar has none"
                               : ": wanted -" + n + " ... " + std::to_string(count - 1)));
}
}  // namespace detail

std::string to_string(const Shape& shape) {
  std::string s = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i) s += ", ";
    s += std::to_string(shape[i]);
  }
  return s + (shape.size() == 1 ? ",)" : ")");
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }

std::int64_t Shape::num_elements() const {
  std::int64_t product = 1;
  bool overflow = false;
  bool zero = false;
  for (std::int64_t e : *this) {
    if (e < 0)
      throw ValueError("shape " + to_string(*this) +
                       " has a negative extent: extents are 0 or more");
    zero |= e == 0;
    // An extent of zero makes the array empty, whatever the product of the others is.
    overflow |= __builtin_mul_overflow(product, e, &product);
  }
  if (zero) return 0;
  if (overflow) {
    throw ValueError("shape " + to_string(*this) +
                     " has more than 2^63 - 1 elements: make its extents smaller");
  }
  return product;
}

std::int64_t checked_product(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw ValueError(std::string(what) + ": " + std::to_string(a) + " x " + std::to_string(b) +
                     " passes 2^63 - 1");
  }
  return product;
}

std::int64_t checked_bytes(const Shape& shape, int itemsize) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(shape.num_elements(), static_cast<std::int64_t>(itemsize), &bytes)) {
    throw ValueError("shape " + to_string(shape) + " of " + std::to_string(itemsize) +
                     "-byte elements has more than 2^63 - 1 bytes: make its extents smaller");
  }
  return bytes;
}

int normalize_dim(std::int64_t dim, int rank, const char* what) {
  if (dim < -rank || dim >= rank) {
    throw ValueError(std::string(what) + ": dim " + std::to_string(dim) +
                     " is out of range for an array of rank " + std::to_string(rank) + ": wanted " +
                     std::to_string(-rank) + " ... " + std::to_string(rank - 1));
  }
  return static_cast<int>(dim < 0 ? dim + rank : dim);
}

Dims normalize_dims(const Dims& dims, int rank, const char* what) {
  Dims out = dims;
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const int d = normalize_dim(dims[i], rank, what);
    if (seen >> d & 1u)
      throw ValueError(std::string(what) + ": dim " + std::to_string(d) + " is given twice");
    seen |= 1u << d;
    out[i] = d;
  }
  return out;
}

}  // namespace shmap
