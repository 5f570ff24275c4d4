// An Array is a handle on one of three things: a concrete (possibly sharded) array, a device's
// block inside a shard_map body, or a traced value. Copying a handle is cheap and shares the value;
// no operation changes a value that a user can see. Handles are thread-safe as std::shared_ptr is:
// several threads may copy and read one value, but one handle object must not be assigned while
// another thread uses it.
//
// shape() and type() return by value, so that `for (auto d : (x + 1).shape())` is safe. The
// functions that read elements (to_vector, item, operator bool, printing) and block_until_ready
// wait until the value is computed, and throw the error of a task that failed to compute it. All
// other member functions of Array return at once.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shmap/axes.h"
#include "shmap/device.h"
#include "shmap/dtype.h"
#include "shmap/error.h"
#include "shmap/shape.h"
#include "shmap/shaped_array.h"
#include "shmap/slice.h"

namespace shmap {

class Array;
class Index;
class IndexedArray;
class NamedSharding;
struct Operand;
struct Shard;

namespace detail {
struct NodeBase {
  NodeBase() = default;
  NodeBase(const NodeBase&) = delete;
  NodeBase& operator=(const NodeBase&) = delete;
  virtual ~NodeBase();
  mutable std::atomic<std::int32_t> refs{0};
};
Array literal(DType dtype, const void* value);  // a weakly typed host scalar
void host_copy(const Array& x, DType wanted, void* out, std::int64_t count, SourceLine source);
void item_copy(const Array& x, DType wanted, void* out, SourceLine source);
void destroy(NodeBase* node) noexcept;
}  // namespace detail

class Array {
 public:
  Array() = default;  // an empty array, which can only be assigned
  template <Scalar T>
  Array(T value) : Array(detail::literal(dtype_of<T>, &value)) {}
  Array(float16 value) : Array(detail::literal(DType::f16, &value)) {}
  Array(bfloat16 value) : Array(detail::literal(DType::bf16, &value)) {}
  Array(const Array& o) noexcept : node_(o.node_) {
    if (node_) node_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Array(Array&& o) noexcept : node_(std::exchange(o.node_, nullptr)) {}
  Array& operator=(const Array& o) & noexcept {
    Array copy(o);
    std::swap(node_, copy.node_);
    return *this;
  }
  Array& operator=(Array&& o) & noexcept {
    std::swap(node_, o.node_);
    o.reset();
    return *this;
  }
  // x[0] = y and x[0] += y would change a temporary array and have no effect on x, so they do not
  // compile: compilers show the line of the deleted function.
  template <class T>
  void operator=(T&&) && = delete;  // x[...] is a new array: to change x, x = x.at(...).set(y)
  ~Array() { reset(); }

  // These functions throw ValueError for an empty array, one that was never assigned or was moved
  // from. Here and in all headers, `source` is the caller's line, which error messages show; its
  // default argument fills it in.
  Shape shape(SourceLine source = SourceLine::current()) const;
  int ndim(SourceLine source = SourceLine::current()) const;
  std::int64_t size(SourceLine source = SourceLine::current()) const;
  DType dtype(SourceLine source = SourceLine::current()) const;
  std::int64_t nbytes(SourceLine source = SourceLine::current()) const;
  ShapedArray type(SourceLine source = SourceLine::current()) const;
  // The mesh axes over which the value may vary, in mesh order.
  std::vector<std::string> vma(SourceLine source = SourceLine::current()) const;
  // The sharding of a concrete array. TypeError for a block in a shard_map body, for a traced
  // value, and for a host scalar, which is not on any device yet.
  NamedSharding sharding(SourceLine source = SourceLine::current()) const;
  // Whether this process drives all devices of the array's mesh.
  bool is_fully_addressable(SourceLine source = SourceLine::current()) const;
  // One shard for each device of the mesh that this process drives. The shards share the array's
  // memory. Throws the TypeErrors of sharding().
  std::vector<Shard> addressable_shards(SourceLine source = SourceLine::current()) const;
  // Copies the elements to the host, in row-major order. The array must be fully addressable: this
  // process drives all of its devices. ValueError where parts of the array are only on devices of
  // other processes. TypeError where T is not the C++ type of the dtype, for traced and batched
  // values, and for a block that may differ between devices.
  template <class T>
  std::vector<T> to_vector(SourceLine source = SourceLine::current()) const;
  // The value of an array of size 1 whose value is the same on every device. ValueError for another
  // size; otherwise the errors of to_vector.
  template <class T>
  T item(SourceLine source = SourceLine::current()) const;
  // Waits until the value is computed, and throws the error of a task that failed. Returns at once
  // for a traced value.
  const Array& block_until_ready(SourceLine source = SourceLine::current()) const;
  explicit operator bool() const;  // for a host `if`: whether the one element is not zero

  Array operator[](const Index& index) const;
  Array operator[](std::initializer_list<Index> indices) const;
  // Functional updates, x.at(index).set(y): see IndexedArray. An rvalue array is donated.
  IndexedArray at(const Index& index) const&;
  IndexedArray at(const Index& index) &&;
  IndexedArray at(std::initializer_list<Index> indices) const&;
  IndexedArray at(std::initializer_list<Index> indices) &&;

  friend Array operator+(Operand x);
  friend Array operator-(Operand x);
  friend Array operator~(Operand x);
  friend Array operator+(Operand a, Operand b);
  friend Array operator-(Operand a, Operand b);
  friend Array operator*(Operand a, Operand b);
  friend Array operator/(Operand a, Operand b);
  friend Array operator%(Operand a, Operand b);
  friend Array operator&(Operand a, Operand b);
  friend Array operator|(Operand a, Operand b);
  friend Array operator^(Operand a, Operand b);
  friend Array operator<<(Operand a, Operand b);
  friend Array operator>>(Operand a, Operand b);
  friend Array operator==(Operand a, Operand b);
  friend Array operator!=(Operand a, Operand b);
  friend Array operator<(Operand a, Operand b);
  friend Array operator<=(Operand a, Operand b);
  friend Array operator>(Operand a, Operand b);
  friend Array operator>=(Operand a, Operand b);
  Array& operator+=(Operand b) &;
  Array& operator-=(Operand b) &;
  Array& operator*=(Operand b) &;
  Array& operator/=(Operand b) &;
  template <class T>
  void operator+=(T&&) && = delete;  // x[...] is a new array: to change x, x = x.at(...).add(y)
  template <class T>
  void operator-=(T&&) && = delete;  // x[...] is a new array: to change x, x = x.at(...).add(-y)
  template <class T>
  void operator*=(T&&) && = delete;  // x[...] is a new array: to change x, x = x.at(...).mul(y)
  template <class T>
  void operator/=(T&&) && = delete;  // x[...] is a new array: to change x, x = x.at(...).divide(y)
  friend std::ostream& operator<<(std::ostream& out, const Array& x);

  // For use by the library only: the node behind the handle, and functions that make a handle on a
  // node (`of` adds a reference).
  detail::NodeBase* node() const { return node_; }
  // Makes the first handle on a node that has no handle yet.
  static Array first(detail::NodeBase* node) {
    Array a;
    a.node_ = node;
    node->refs.store(1, std::memory_order_relaxed);
    return a;
  }
  static Array of(detail::NodeBase* node) {
    Array a;
    a.node_ = node;
    if (node) node->refs.fetch_add(1, std::memory_order_relaxed);
    return a;
  }

 private:
  void reset() noexcept {
    // A sole owner needs no atomic decrement: no other thread can add a reference at the same time.
    if (node_ && (node_->refs.load(std::memory_order_acquire) == 1 ||
                  node_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)) {
      detail::destroy(node_);
    }
    node_ = nullptr;
  }
  detail::NodeBase* node_ = nullptr;
};

// An argument of an operation: an array or a host scalar, together with the caller's line.
// Conversions make Operands; user code never names the type. An rvalue array is moved into its
// Operand, and that move donates the array's buffer.
struct Operand {
  Operand(const Array& x, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : value(x), source{file, line} {}
  Operand(Array&& x, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : value(std::move(x)), source{file, line} {}
  template <Scalar T>
  Operand(T x, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : value(x), source{file, line} {}
  Operand(float16 x, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : value(x), source{file, line} {}
  Operand(bfloat16 x, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : value(x), source{file, line} {}
  Array value;
  SourceLine source;
};

// The block of an array on one device (Array::addressable_shards): the device; for each dim, which
// elements of the global array the block holds; and the block as an array on that device.
struct Shard {
  Device device;
  std::vector<Slice> index;
  Array data;
};

// start : stop : step in an index, as in NumPy: a negative start or stop counts from the end, and
// both are clamped to the extent. range() without arguments selects the whole dim, NumPy's ":".
struct Range {
  static constexpr std::int64_t kEnd = INT64_MAX;
  std::int64_t start = 0, stop = kEnd, step = 1;
};
constexpr Range range() { return {}; }
template <std::integral B>
constexpr Range range(B stop) {  // NumPy's ":stop"
  return {0, static_cast<std::int64_t>(stop)};
}
template <std::integral A, std::integral B>
constexpr Range range(A start, B stop, std::int64_t step = 1) {
  return {static_cast<std::int64_t>(start), static_cast<std::int64_t>(stop), step};
}

// NumPy's "..." in an index: it stands for all dims that the other entries do not index. An index
// has at most one ellipsis.
struct ellipsis_t {};
inline constexpr ellipsis_t ellipsis;

// One entry of x[…]: an int, an integer array, a range, none (inserts a new dim), or ellipsis.
class Index {
 public:
  enum class Kind { integer, array, range, new_dim, other_dims };
  template <std::integral T>
  Index(T i, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : kind(Kind::integer), integer(static_cast<std::int64_t>(i)), source{file, line} {}
  Index(const Array& i, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : kind(Kind::array), array(i), source{file, line} {}
  Index(Range r, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : kind(Kind::range), slice(r), source{file, line} {}
  Index(none_t, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : kind(Kind::new_dim), source{file, line} {}
  Index(ellipsis_t, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : kind(Kind::other_dims), source{file, line} {}
  Kind kind;
  std::int64_t integer = 0;
  Range slice;
  Array array;
  SourceLine source;
};

// How an element of an index array that is out of range is treated (lax.GatherScatterMode).
// fill_or_drop: a read gives a fill value, and an update is dropped. clip: the nearest index in
// range is used instead.
enum class GatherScatterMode : std::uint8_t { fill_or_drop, clip };

// x.at(index) denotes the elements of x that x[index] reads. Each update returns a new array of x's
// shape and dtype in which only these elements differ from x (as jax.numpy.ndarray.at); divide of
// an integer array returns a float array, as x / y does. y is converted to x's dtype and broadcast
// to the shape of x[index]. `x = std::move(x).at(i).set(y)` reuses x's memory where x is its sole
// owner.
//
// A host int that is out of range is a ValueError, as in x[index]. A negative element of an integer
// array (a scalar array too) counts from the end; an element that is out of range is treated as
// `mode` says. Where an index array names one element of x several times, set keeps the last value
// in row-major order (NumPy's rule, on every backend); the other updates combine all values (divide
// and power take the product of the values); apply calls f once for each time that the element is
// named. Bools can be set; add, mul, min and max of bools take ints and ranges only, and all other
// updates of bools are TypeErrors. All updates have derivatives; values that tie in min or max
// share the derivative equally.
class [[nodiscard]] IndexedArray {
 public:
  using Mode = GatherScatterMode;
  IndexedArray(Array x, std::vector<Index> indices)
      : x_(std::move(x)), indices_(std::move(indices)) {}
  Array get(Mode mode = Mode::clip) const;
  // The fill value that the overload above uses with Mode::fill_or_drop is NaN for floats, the
  // least value of a signed integer dtype, the greatest value of an unsigned one, and true for
  // bools. ValueError where a fill value is given with Mode::clip.
  Array get(Mode mode, Operand fill_value) const;
  Array set(Operand y, Mode mode = Mode::fill_or_drop) const&;
  Array add(Operand y, Mode mode = Mode::fill_or_drop) const&;
  Array subtract(Operand y, Mode mode = Mode::fill_or_drop) const&;
  Array multiply(Operand y, Mode mode = Mode::fill_or_drop) const&;
  Array mul(Operand y, Mode mode = Mode::fill_or_drop) const&;  // multiply
  Array divide(Operand y, Mode mode = Mode::fill_or_drop) const&;
  Array power(Operand y, Mode mode = Mode::fill_or_drop) const&;
  Array min(Operand y, Mode mode = Mode::fill_or_drop) const&;
  Array max(Operand y, Mode mode = Mode::fill_or_drop) const&;
  Array set(Operand y, Mode mode = Mode::fill_or_drop) &&;
  Array add(Operand y, Mode mode = Mode::fill_or_drop) &&;
  Array subtract(Operand y, Mode mode = Mode::fill_or_drop) &&;
  Array multiply(Operand y, Mode mode = Mode::fill_or_drop) &&;
  Array mul(Operand y, Mode mode = Mode::fill_or_drop) &&;
  Array divide(Operand y, Mode mode = Mode::fill_or_drop) &&;
  Array power(Operand y, Mode mode = Mode::fill_or_drop) &&;
  Array min(Operand y, Mode mode = Mode::fill_or_drop) &&;
  Array max(Operand y, Mode mode = Mode::fill_or_drop) &&;
  // f is an elementwise function. It is given an array of the shape of x[index], and must return an
  // array of the same shape (otherwise ValueError) and dtype (otherwise TypeError). With an index
  // array of several elements, f runs in a while_loop that has as many trips as the most frequent
  // index has occurrences: outside of jit the host waits for that number, and reverse mode has the
  // limits of while_loop.
  Array apply(const std::function<Array(Array)>& f, Mode mode = Mode::fill_or_drop,
              SourceLine source = SourceLine::current()) const&;
  Array apply(const std::function<Array(Array)>& f, Mode mode = Mode::fill_or_drop,
              SourceLine source = SourceLine::current()) &&;

 private:
  Array x_;
  std::vector<Index> indices_;
};

template <class T>
std::vector<T> Array::to_vector(SourceLine source) const {
  if constexpr (std::same_as<T, bool>) {
    static_assert(sizeof(bool) == 1);
    std::vector<unsigned char> bytes(static_cast<std::size_t>(size(source)));
    detail::host_copy(*this, DType::bool_, bytes.data(), static_cast<std::int64_t>(bytes.size()),
                      source);
    return std::vector<bool>(bytes.begin(), bytes.end());
  } else {
    std::vector<T> out(static_cast<std::size_t>(size(source)));
    detail::host_copy(*this, dtype_of<T>, out.data(), static_cast<std::int64_t>(out.size()),
                      source);
    return out;
  }
}

template <class T>
T Array::item(SourceLine source) const {
  T out;
  detail::item_copy(*this, dtype_of<T>, &out, source);
  return out;
}

}  // namespace shmap
