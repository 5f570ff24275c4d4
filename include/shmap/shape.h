// Shape holds the extents of an array, and Dims a list of dims. The shape of an array has up to
// kMaxRank non-negative extents whose product fits into 63 bits; other extents are a ValueError
// that shows them. (reshape also takes one extent of -1, to be inferred.)
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace shmap {

inline constexpr int kMaxRank = 16;

// An extent or an index. It converts from every integer type, so that {v.size(), n} is not a
// narrowing conversion.
struct Extent {
  template <std::integral T>
  constexpr Extent(T v) : value(static_cast<std::int64_t>(v)) {}
  std::int64_t value;
};

namespace detail {
[[noreturn]] void throw_rank_limit(std::size_t rank);
[[noreturn]] void throw_no_such_extent(std::int64_t index, std::size_t count);
// An integer type, or an enumeration that converts to one.
template <class T>
concept Integer = std::integral<T> ||(std::is_enum_v<T>&& std::convertible_to<T, std::int64_t>);
template <class T>
constexpr void no_iterators_of_temporaries() {
  static_assert(!sizeof(T*),
                "begin, end and data of a temporary shape would point to what is gone after this "
                "expression: keep the shape in a variable, as in `Shape shape = x.shape();`");
}
}  // namespace detail

// A list of up to kMaxRank 64-bit integers, stored inline: the base of Shape and Dims. A negative
// index counts from the end; an index out of range is a ValueError.
class IntList {
 public:
  constexpr IntList() = default;
  constexpr IntList(const IntList& o) : n_(o.n_) { copy(o); }
  constexpr IntList& operator=(const IntList& o) {
    n_ = o.n_;
    copy(o);
    return *this;
  }
  constexpr std::size_t size() const { return n_; }
  constexpr bool empty() const { return n_ == 0; }
  template <std::integral Int>
  constexpr std::int64_t operator[](Int i) const {
    return v_[position(static_cast<std::int64_t>(i))];
  }
  template <std::integral Int>
  constexpr std::int64_t& operator[](Int i) {
    return v_[position(static_cast<std::int64_t>(i))];
  }
  constexpr std::int64_t front() const { return v_[position(0)]; }
  constexpr std::int64_t back() const { return v_[position(-1)]; }
  constexpr const std::int64_t* begin() const& { return v_; }
  constexpr const std::int64_t* end() const& { return v_ + n_; }
  constexpr const std::int64_t* data() const& { return v_; }
  template <class T = void>
  const std::int64_t* begin() const&& {
    detail::no_iterators_of_temporaries<T>();
    return nullptr;
  }
  template <class T = void>
  const std::int64_t* end() const&& {
    detail::no_iterators_of_temporaries<T>();
    return nullptr;
  }
  template <class T = void>
  const std::int64_t* data() const&& {
    detail::no_iterators_of_temporaries<T>();
    return nullptr;
  }
  constexpr void push_back(std::int64_t v) {
    if (n_ >= kMaxRank) detail::throw_rank_limit(n_ + 1u);
    v_[n_++] = v;
  }
  constexpr void resize(std::size_t n) {
    if (n > kMaxRank) detail::throw_rank_limit(n);
    for (std::size_t i = n_; i < n; ++i) v_[i] = 0;
    n_ = static_cast<std::uint8_t>(n);
  }
  friend constexpr bool operator==(const IntList& a, const IntList& b) {
    if (a.n_ != b.n_) return false;
    for (std::size_t i = 0; i < a.n_; ++i)
      if (a.v_[i] != b.v_[i]) return false;
    return true;
  }

 protected:
  constexpr std::size_t position(std::int64_t i) const {
    if (static_cast<std::uint64_t>(i) < n_) [[likely]]
      return static_cast<std::size_t>(i);
    if (i >= 0 || i + n_ < 0) detail::throw_no_such_extent(i, n_);
    return static_cast<std::size_t>(i + n_);
  }
  constexpr void copy(const IntList& o) {
    // Copied in steps of four, two and one: compilers turn a plain loop into a string instruction,
    // which is slow to start.
    const std::size_t n = o.n_;
    std::size_t i = 0;
    for (; i + 4 <= n; i += 4) {
      v_[i] = o.v_[i];
      v_[i + 1] = o.v_[i + 1];
      v_[i + 2] = o.v_[i + 2];
      v_[i + 3] = o.v_[i + 3];
    }
    if (n & 2u) {
      v_[i] = o.v_[i];
      v_[i + 1] = o.v_[i + 1];
      i += 2;
    }
    if (n & 1u) v_[i] = o.v_[i];
  }
  // Only the first n_ elements are ever read. The others stay uninitialised, so that making or
  // copying a Shape writes only what it holds.
  std::int64_t v_[kMaxRank];
  std::uint8_t n_ = 0;
};

class Shape : public IntList {
 public:
  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<Extent> extents) {
    for (const Extent& e : extents) push_back(e.value);
  }
  template <std::integral T>
  Shape(const std::vector<T>& extents) {
    for (const T& e : extents) push_back(static_cast<std::int64_t>(e));
  }
  template <std::integral T, std::size_t N>
  Shape(const std::array<T, N>& extents) {
    for (const T& e : extents) push_back(static_cast<std::int64_t>(e));
  }
  explicit Shape(std::span<const std::int64_t> extents) {
    for (std::int64_t e : extents) push_back(e);
  }
  int rank() const { return static_cast<int>(size()); }
  // For two shapes; either may also be a vector or an array of integers.
  friend constexpr bool operator==(const Shape& a, const Shape& b) {
    return static_cast<const IntList&>(a) == static_cast<const IntList&>(b);
  }
  // The product of the extents. ValueError where an extent is negative or the product does not fit
  // into 63 bits.
  std::int64_t num_elements() const;
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape);  // "(2, 3)", "(4,)", "()"
};
std::string to_string(const Shape& shape);  // "(2, 3)"

// num_elements × itemsize. ValueError where the product does not fit into 63 bits.
std::int64_t checked_bytes(const Shape& shape, int itemsize);
// a × b. ValueError naming `what` where the product does not fit into 63 bits.
std::int64_t checked_product(std::int64_t a, std::int64_t b, const char* what);

// The dims that an operation works on, or an extent of each: one integer or a list. Dims is one
// class, in place of an overload of each operation for an int and one for a list, so that {1} and
// {0, 1} are always lists.
class Dims : public IntList {
 public:
  constexpr Dims() = default;
  template <detail::Integer T>
  constexpr Dims(T dim) {
    push_back(static_cast<std::int64_t>(dim));
  }
  constexpr Dims(std::initializer_list<Extent> list) : list_(true) {
    for (const Extent& e : list) push_back(e.value);
  }
  template <std::integral T>
  Dims(const std::vector<T>& list) : list_(true) {
    for (const T& e : list) push_back(static_cast<std::int64_t>(e));
  }
  constexpr bool is_list() const { return list_; }

 private:
  bool list_ = false;
};

// `dim` as a number in [0, rank); a negative dim counts from the end. ValueError naming `what`
// where dim is out of range.
int normalize_dim(std::int64_t dim, int rank, const char* what);
// normalize_dim of every dim, in the order given. ValueError where two of them are the same dim.
Dims normalize_dims(const Dims& dims, int rank, const char* what);

}  // namespace shmap
