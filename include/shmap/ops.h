// Operations on arrays, with the names and meanings of jax.numpy, or of jax.lax where only jax.lax
// has the function. Every operation takes concrete arrays, sharded arrays, blocks inside a
// shard_map body, and traced values alike. An operation does not wait for its result.
//
// Dtypes promote as in JAX with 64-bit types enabled, weak types included; `/` of integers gives a
// float, the result of `%` has the divisor's sign, round rounds halves to even; reductions and
// scans of integers keep their dtype; argmax and argsort give i32. Shapes broadcast as in NumPy.
// Errors are ValueError (shapes, dims) and TypeError (dtypes), with the caller's line.
//
// A host scalar of an integer type that does not fit into an integer array's dtype (u8 array + 300,
// full({2}, -1, u8)) is a ValueError, as it is an OverflowError in NumPy 2, in every function that
// converts the scalar and the array to one dtype. Comparisons take such scalars and compare the
// numbers themselves (u8 array < 300 is true for every element). astype wraps around. A float
// scalar too large for a narrower float dtype becomes infinity.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "shmap/array.h"

namespace shmap {

// ---- creation
namespace detail {
Array from_host(DType dtype, const void* data, std::int64_t count, const Shape& shape,
                SourceLine source);
template <class T>
Array from_list(std::initializer_list<T> values, const Shape& shape, SourceLine source) {
  return from_host(dtype_of<T>, values.begin(), static_cast<std::int64_t>(values.size()), shape,
                   source);
}
}  // namespace detail

template <class T>
concept Element = Scalar<T> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

// A copy of row-major host data. ValueError where the number of values is not the number of
// elements of the shape.
template <Element T>
Array array(std::initializer_list<T> values, Shape shape,
            SourceLine source = SourceLine::current()) {
  return detail::from_list(values, shape, source);
}
template <Element T>
Array array(std::span<const T> values, Shape shape, SourceLine source = SourceLine::current()) {
  return detail::from_host(dtype_of<T>, values.data(), static_cast<std::int64_t>(values.size()),
                           shape, source);
}
template <Element T>
requires(!std::same_as<T, bool>) Array
    array(const std::vector<T>& values, Shape shape, SourceLine source = SourceLine::current()) {
  return array<T>(std::span<const T>(values), shape, source);
}
template <std::same_as<bool> T>
Array array(const std::vector<T>& values, Shape shape, SourceLine source = SourceLine::current()) {
  const std::unique_ptr<bool[]> bytes(new bool[values.size()]);  // the vector holds bits
  std::copy(values.begin(), values.end(), bytes.get());
  return array<bool>(std::span<const bool>(bytes.get(), values.size()), shape, source);
}
template <Element T>
requires(!std::is_const_v<T>) Array
    array(std::span<T> values, Shape shape, SourceLine source = SourceLine::current()) {
  return array<T>(std::span<const T>(values), shape, source);
}
Array zeros(Shape shape, DType dtype = f32, SourceLine source = SourceLine::current());
Array ones(Shape shape, DType dtype = f32, SourceLine source = SourceLine::current());
// The same as zeros: the elements are not left undefined, but set to 0.
Array empty(Shape shape, DType dtype = f32, SourceLine source = SourceLine::current());
Array full(Shape shape, Operand value);
Array full(Shape shape, Operand value, DType dtype);
Array eye(std::int64_t n, DType dtype = f32, SourceLine source = SourceLine::current());
Array arange(std::int64_t n, DType dtype = f32, SourceLine source = SourceLine::current());
Array arange(Operand start, Operand stop, Operand step = 1, DType dtype = f32);
Array linspace(Operand start, Operand stop, std::int64_t num = 50);  // stop included
Array iota(DType dtype, std::int64_t n, SourceLine source = SourceLine::current());
Array zeros_like(Operand x);
Array ones_like(Operand x);
Array empty_like(Operand x);
Array full_like(Operand x, Operand value);

// ---- placement
// Returns x with the given sharding, or whole on the given device, as a committed array
// (jax.device_put). Operations move uncommitted operands to the devices of committed operands. Data
// moves only where x has another sharding. ValueError where the extent of a dim is not divisible by
// the number of parts, and in the body of a shard_map.
Array device_put(Array x, NamedSharding sharding, SourceLine source = SourceLine::current());
Array device_put(Array x, Device device, SourceLine source = SourceLine::current());
// Gives every process of the array's mesh the whole array, so that each can read it. Where the mesh
// spans several processes, the result is on one device of the calling process; otherwise it is
// replicated over the mesh. A collective of processes: every process of the mesh must call it.
// ValueError in the body of a shard_map; TypeError for a traced value.
Array process_allgather(const Array& x);

// ---- elementwise
Array abs(Operand x);
Array sign(Operand x);
Array floor(Operand x);
Array ceil(Operand x);
Array round(Operand x);
Array exp(Operand x);
Array exp2(Operand x);
Array expm1(Operand x);
Array log(Operand x);
Array log1p(Operand x);
Array sin(Operand x);
Array cos(Operand x);
Array tan(Operand x);
Array tanh(Operand x);
Array asin(Operand x);
Array acos(Operand x);
Array atan(Operand x);
Array sinh(Operand x);
Array cosh(Operand x);
Array asinh(Operand x);
Array acosh(Operand x);
Array atanh(Operand x);
Array sqrt(Operand x);
Array rsqrt(Operand x);
Array cbrt(Operand x);
Array logistic(Operand x);
Array erf(Operand x);
Array erfc(Operand x);
Array erf_inv(Operand x);
Array square(Operand x);
Array reciprocal(Operand x);
Array isnan(Operand x);
Array isinf(Operand x);
Array isfinite(Operand x);
Array logical_not(Operand x);
Array bitwise_not(Operand x);
Array population_count(Operand x);  // of integers: the number of 1 bits
Array clz(Operand x);               // of integers: leading 0 bits; for 0 the dtype's width in bits
Array atan2(Operand a, Operand b);
Array pow(Operand a, Operand b);
Array floor_divide(Operand a, Operand b);
Array remainder(Operand a, Operand b);
// The float next to a in the direction of b; its derivatives are 0.
Array nextafter(Operand a, Operand b);
Array maximum(Operand a, Operand b);
Array minimum(Operand a, Operand b);
Array logical_and(Operand a, Operand b);
Array logical_or(Operand a, Operand b);
Array logical_xor(Operand a, Operand b);
Array bitwise_and(Operand a, Operand b);
Array bitwise_or(Operand a, Operand b);
Array bitwise_xor(Operand a, Operand b);
Array left_shift(Operand a, Operand b);
Array right_shift(Operand a, Operand b);  // arithmetic for signed dtypes
Array clip(Operand x, Operand lo, Operand hi);
Array where(Operand pred, Operand on_true, Operand on_false);
// lax.select: all operands have one shape, but pred may be a scalar.
Array select(Operand pred, Operand on_true, Operand on_false);
Array astype(Operand x, DType dtype);
Array bitcast(Operand x, DType dtype);
Array stop_gradient(Operand x);  // returns x; the derivative is zero

// ---- shape
Array reshape(Operand x, Shape shape);  // one extent may be -1
Array transpose(Operand x);
Array transpose(Operand x, Dims perm);
Array swapaxes(Operand x, int a, int b);
Array broadcast_to(Operand x, Shape shape);
Array broadcast_in_dim(Operand x, Shape shape, Dims broadcast_dimensions);
Array expand_dims(Operand x, Dims axis);
Array squeeze(Operand x);
Array squeeze(Operand x, Dims axis);
Array concatenate(const std::vector<Array>& arrays, int axis = 0,
                  SourceLine source = SourceLine::current());
Array stack(const std::vector<Array>& arrays, int axis = 0,
            SourceLine source = SourceLine::current());
// An int is the number of parts, which are equal (ValueError where x cannot be split equally). A
// list has the indices at which x is split.
std::vector<Array> split(Operand x, Dims indices_or_sections, int axis = 0);
std::vector<Array> unstack(Operand x, int axis = 0);
Array tile(Operand x, Dims reps);
Array repeat(Operand x, std::int64_t repeats, int axis);
inline Array repeat(Operand x, std::int64_t repeats) {  // of all elements in row-major order
  const SourceLine line = x.source;
  return repeat({reshape(std::move(x), {-1}), line.file, line.line}, repeats, 0);
}
// widths has a pair {before, after} for each dim, or one pair for all dims.
Array pad(Operand x, std::vector<std::pair<std::int64_t, std::int64_t>> widths, Operand value = 0);
Array slice(Operand x, Dims start, Dims limit);
Array slice(Operand x, Dims start, Dims limit, Dims strides);
// Start indices are clamped so that the slice lies inside the array, as in JAX.
Array dynamic_slice(Operand x, const std::vector<Array>& starts, Shape sizes);
Array dynamic_update_slice(Operand x, Operand update, const std::vector<Array>& starts);
// Slices along one dim; the other dims stay whole (lax.slice_in_dim and the functions like it).
Array slice_in_dim(Operand x, std::int64_t start, std::int64_t limit, std::int64_t stride = 1,
                   int axis = 0);  // a negative start or limit counts from the end
Array dynamic_slice_in_dim(Operand x, Operand start, std::int64_t size, int axis = 0);
Array dynamic_update_slice_in_dim(Operand x, Operand update, Operand start, int axis = 0);
// The slice at one index along a dim; with keepdims, the dim stays in the result with extent 1. A
// negative index counts from the end. index_in_dim throws ValueError for an index out of range; the
// dynamic functions clamp it. `update` has the rank of x, or lacks the indexed dim.
Array index_in_dim(Operand x, std::int64_t index, int axis = 0, bool keepdims = true);
Array dynamic_index_in_dim(Operand x, Operand index, int axis = 0, bool keepdims = true);
Array dynamic_update_index_in_dim(Operand x, Operand update, Operand index, int axis = 0);
// A negative index counts from the end; an index out of range gives a fill value (as
// IndexedArray::get with Mode::fill_or_drop).
Array take(Operand x, Operand indices);  // of x flattened to 1-D
Array take(Operand x, Operand indices, int axis);
struct GatherDimensionNumbers {
  std::vector<int> offset_dims = {}, collapsed_slice_dims = {}, start_index_map = {};
};
Array gather(Operand x, Operand start_indices, GatherDimensionNumbers dimension_numbers,
             Shape slice_sizes);
// The classes are a new last dim.
Array one_hot(Operand x, std::int64_t num_classes, DType dtype = f32);
Array flip(Operand x);
Array flip(Operand x, Dims axis);
Array roll(Operand x, Dims shift);
Array roll(Operand x, Dims shift, Dims axis);

// ---- reductions and scans
// An empty list of axes, {}, reduces over no dim.
Array sum(Operand x);
Array sum(Operand x, Dims axis, bool keepdims = false);
Array prod(Operand x);
Array prod(Operand x, Dims axis, bool keepdims = false);
Array max(Operand x);
Array max(Operand x, Dims axis, bool keepdims = false);
Array min(Operand x);
Array min(Operand x, Dims axis, bool keepdims = false);
Array mean(Operand x);
Array mean(Operand x, Dims axis, bool keepdims = false);
Array var(Operand x);
Array var(Operand x, Dims axis, bool keepdims = false);
Array any(Operand x);
Array any(Operand x, Dims axis, bool keepdims = false);
Array all(Operand x);
Array all(Operand x, Dims axis, bool keepdims = false);
Array argmax(Operand x);
Array argmax(Operand x, Dims axis, bool keepdims = false);
Array argmin(Operand x);
Array argmin(Operand x, Dims axis, bool keepdims = false);
Array logsumexp(Operand x);
Array logsumexp(Operand x, Dims axis, bool keepdims = false);
Array cumsum(Operand x, int axis);
Array cumprod(Operand x, int axis);
Array cummax(Operand x, int axis);
Array cummin(Operand x, int axis);
Array cumlogsumexp(Operand x, int axis);
// Without an axis, cumsum and cumprod of all elements in row-major order (as in jax.numpy), and the
// others along dim 0 (as in jax.lax).
inline Array cumsum(Operand x) {
  const SourceLine line = x.source;
  return cumsum({reshape(std::move(x), {-1}), line.file, line.line}, 0);
}
inline Array cumprod(Operand x) {
  const SourceLine line = x.source;
  return cumprod({reshape(std::move(x), {-1}), line.file, line.line}, 0);
}
inline Array cummax(Operand x) { return cummax(std::move(x), 0); }
inline Array cummin(Operand x) { return cummin(std::move(x), 0); }
inline Array cumlogsumexp(Operand x) { return cumlogsumexp(std::move(x), 0); }
Array sort(Operand x, int axis = -1);
Array argsort(Operand x, int axis = -1);
// The k largest elements along the last dim, in descending order, and their indices (i32).
std::pair<Array, Array> top_k(Operand x, std::int64_t k);

// ---- diagonals of matrices; k counts diagonals above the main one (below it, where k is negative)
Array tril(Operand x, std::int64_t k = 0);  // of the last two dims: zeros above the k-th diagonal
Array triu(Operand x, std::int64_t k = 0);  // of the last two dims: zeros below the k-th diagonal
// For a 1-D x, the matrix with x on its k-th diagonal; for a matrix x, the k-th diagonal of x.
Array diag(Operand x, std::int64_t k = 0);
// The k-th diagonal, along the result's last dim, and the sum of that diagonal.
Array diagonal(Operand x, std::int64_t k = 0, int axis1 = 0, int axis2 = 1);
Array trace(Operand x, std::int64_t k = 0, int axis1 = 0, int axis2 = 1);

// ---- linear algebra; matrix products of bf16 and f16 accumulate in f32
struct DotDimensionNumbers {
  std::pair<std::vector<int>, std::vector<int>> contracting = {}, batch = {};
};
Array dot_general(Operand a, Operand b, DotDimensionNumbers dimension_numbers);
Array matmul(Operand a, Operand b);
Array dot(Operand a, Operand b);
Array outer(Operand a, Operand b);
// The subscripts of einsum, together with the caller's line.
struct Subscripts {
  template <class S>
  requires std::convertible_to<const S&, std::string_view> Subscripts(
      const S& s, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : text(s), source{file, line} {}
  std::string_view text;
  SourceLine source;
};
namespace detail {
Array einsum(Subscripts subscripts, std::vector<Array> operands);
}
// numpy.einsum: any number of operands, implicit output ("ij,jk"), diagonals ("ii->i"), ellipsis.
template <std::convertible_to<Array>... A>
Array einsum(Subscripts subscripts, const A&... operands) {
  return detail::einsum(subscripts, {Array(operands)...});
}

// ---- neural networks
Array softmax(Operand x, Dims axis = -1);
Array log_softmax(Operand x, Dims axis = -1);
Array relu(Operand x);
Array gelu(Operand x, bool approximate = true);
Array silu(Operand x);
Array layer_norm(Operand x, Operand scale, Operand bias, double eps = 1e-5);  // over the last dim
Array rms_norm(Operand x, Operand scale, double eps = 1e-6);                  // over the last dim

}  // namespace shmap
