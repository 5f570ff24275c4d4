#include "core/ops/promote.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/element_type.h"
#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// JAX's type lattice (JEP 9407): a node for each dtype, and two for weak Python scalars. An edge
// leads to a wider type.
#define SHMAP_NODE(name, ...) node_##name,
enum LatticeNode : int { SHMAP_DTYPES(SHMAP_NODE) weak_int, weak_float, kNodes };
#undef SHMAP_NODE

constexpr std::uint32_t bit(int n) { return 1u << n; }

// For each node: the set of all nodes at or above it.
constexpr std::array<std::uint32_t, kNodes> make_upper() {
  std::array<std::uint32_t, kNodes> up{};
  std::uint32_t edges[kNodes] = {};
  edges[node_bool_] = bit(weak_int);
  edges[weak_int] = bit(node_i8) | bit(node_u8);
  edges[node_i8] = bit(node_i16);
  edges[node_i16] = bit(node_i32);
  edges[node_i32] = bit(node_i64);
  edges[node_i64] = bit(weak_float);
  edges[node_u8] = bit(node_i16) | bit(node_u16);
  edges[node_u16] = bit(node_i32) | bit(node_u32);
  edges[node_u32] = bit(node_i64) | bit(node_u64);
  edges[node_u64] = bit(weak_float);
  edges[weak_float] = bit(node_f16) | bit(node_bf16);
  edges[node_f16] = bit(node_f32);
  edges[node_bf16] = bit(node_f32);
  edges[node_f32] = bit(node_f64);
  for (int n = 0; n < kNodes; ++n) up[static_cast<std::size_t>(n)] = bit(n);
  for (int round = 0; round < kNodes; ++round)
    for (std::size_t n = 0; n < kNodes; ++n)
      for (std::size_t m = 0; m < kNodes; ++m)
        if (edges[n] >> m & 1u) up[n] |= up[m];
  return up;
}
constexpr std::array<std::uint32_t, kNodes> kUpper = make_upper();

constexpr int lattice_node(DType t, bool weak) {
  if (weak && is_integer(t)) return weak_int;
  if (weak && is_floating(t)) return weak_float;
  return static_cast<int>(t);
}

constexpr DType dtype_of_node(int node) {
  return node == weak_int ? DType::i32 : node == weak_float ? DType::f64 : static_cast<DType>(node);
}

// The least common upper bound of two nodes.
constexpr int join(int a, int b) {
  const std::uint32_t common =
      kUpper[static_cast<std::size_t>(a)] & kUpper[static_cast<std::size_t>(b)];
  for (std::size_t n = 0; n < kNodes; ++n)
    if ((common >> n & 1u) && (common & ~kUpper[n]) == 0) return static_cast<int>(n);
  return node_f64;
}

// Without edges in make_upper a dtype would have no bound with another one.
constexpr bool each_pair_has_a_bound() {
  for (std::size_t a = 0; a < kNodes; ++a) {
    for (std::size_t b = 0; b < kNodes; ++b) {
      const auto n = static_cast<std::size_t>(join(static_cast<int>(a), static_cast<int>(b)));
      if (a == node_prng_key || b == node_prng_key) continue;
      if ((kUpper[a] & kUpper[b]) != kUpper[n]) return false;
    }
  }
  return true;
}
static_assert(each_pair_has_a_bound());

template <class To>
To literal_as(const LiteralNode& x) {
  return with_plain(x.type.dtype(), [&]<class Stored>() {
    Stored stored;
    __builtin_memcpy(static_cast<void*>(&stored), x.value, sizeof(Stored));
    using From = std::conditional_t<std::is_arithmetic_v<Stored>, Stored, float>;
    const auto v = static_cast<From>(stored);
    if constexpr (std::is_same_v<To, bool>) {
      return static_cast<double>(v) != 0;
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
      // Converts as the cast kernels do: truncates and saturates; NaN becomes 0.
      if (v != v) return To{0};
      if (static_cast<double>(v) <= static_cast<double>(std::numeric_limits<To>::min()))
        return std::numeric_limits<To>::min();
      if (static_cast<double>(v) >= static_cast<double>(std::numeric_limits<To>::max()))
        return std::numeric_limits<To>::max();
      return static_cast<To>(v);
    } else {
      return static_cast<To>(v);
    }
  });
}

// The float nearest to x or, if none is equal to x, the one of the two neighbours of x whose last
// bit is 1: rounded once more, to a half type, it gives what x rounded once would.
float rounded_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto back = static_cast<double>(nearest);
  const std::uint32_t away = std::fabs(back) > std::fabs(x) ? 1 : 0;
  const std::uint32_t inexact = back < x || back > x ? 1 : 0;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(nearest) - away) | inexact);
}

Array convert_literal(const LiteralNode& x, DType dtype, bool weak) {
  auto* out = new LiteralNode(ShapedArray(Shape(), dtype, weak, AxisSet()));
  with_plain(dtype, [&]<class T>() {
    T value;
    if constexpr (std::is_arithmetic_v<T>)
      value = literal_as<T>(x);
    else if (x.type.dtype() == DType::f64)
      value = T(rounded_to_odd(literal_as<double>(x)));
    else
      value = T(literal_as<float>(x));
    __builtin_memcpy(out->value, &value, sizeof(T));
  });
  return Array::of(out);
}

__int128 lowest(DType t) {
  return is_unsigned_int(t) ? __int128{0} : -(__int128{1} << (8 * itemsize(t) - 1));
}
__int128 highest(DType t) {
  return (__int128{1} << (8 * itemsize(t) - (is_unsigned_int(t) ? 0 : 1))) - 1;
}

// The value of a host scalar of an integer type as the user wrote it; null for other values.
std::optional<__int128> host_integer(const Array& x) {
  const Node* node = node_of(x);
  if (!node || node->kind != NodeKind::literal || !node->type.weak() ||
      !is_integer(node->type.dtype()))
    return std::nullopt;
  const auto& literal = static_cast<const LiteralNode&>(*node);
  return is_unsigned_int(node->type.dtype()) ? __int128{literal_as<std::uint64_t>(literal)}
                                             : __int128{literal_as<std::int64_t>(literal)};
}

std::string text_of(__int128 v) {
  return v < 0 ? std::to_string(static_cast<std::int64_t>(v))
               : std::to_string(static_cast<std::uint64_t>(v));
}

}  // namespace

void check_scalar_fits(const Array& x, DType dtype, const char* what, SourceLine source) {
  if (!is_integer(dtype)) return;
  const std::optional<__int128> value = host_integer(x);
  if (!value || (*value >= lowest(dtype) && *value <= highest(dtype))) return;
  throw ValueError(
      std::string(what) + ": the host scalar " + text_of(*value) + " is out of bounds for " +
      short_name(dtype) + ", which holds " + text_of(lowest(dtype)) + " to " +
      text_of(highest(dtype)) +
      ": convert the array to a wider dtype with astype, or the scalar, to wrap around" +
      at_line(source));
}

Array convert_operand(Array x, DType dtype, const char* what, SourceLine source, bool weak) {
  check_scalar_fits(x, dtype, what, source);
  return convert(std::move(x), dtype, source, weak);
}

int beyond(const Array& scalar, const ShapedArray& other) {
  if (other.weak() || !is_integer(other.dtype())) return 0;
  const std::optional<__int128> value = host_integer(scalar);
  if (!value) return 0;
  return *value > highest(other.dtype()) ? 1 : *value < lowest(other.dtype()) ? -1 : 0;
}

DType to_inexact(DType t) {
  if (is_floating(t) || t == DType::prng_key) return t;
  return t == DType::i64 || t == DType::u64 ? DType::f64 : DType::f32;
}

Promoted promote_types(DType a, bool weak_a, DType b, bool weak_b) {
  if (a == DType::prng_key || b == DType::prng_key) {
    if (a == b) return {a, false};
    throw TypeError("random keys and numbers have no common type: keys are not numbers");
  }
  const int node = join(lattice_node(a, weak_a), lattice_node(b, weak_b));
  if (node != weak_int && node != weak_float) return {dtype_of_node(node), false};
  // A weak result has the dtype of the scalar's own C++ type.
  const bool want_float = node == weak_float;
  const auto fits = [&](DType t, bool weak) {
    return weak && (want_float ? is_floating(t) : is_integer(t));
  };
  const bool fa = fits(a, weak_a), fb = fits(b, weak_b);
  if (fa && fb) return {dtype_of_node(join(lattice_node(a, false), lattice_node(b, false))), true};
  if (fa) return {a, true};
  if (fb) return {b, true};
  return {dtype_of_node(node), true};  // u64 with a signed integer
}

const ShapedArray& type_of(const Operand& x, const char* what) {
  return checked_node(x.value, what, x.source).type;
}

Array convert(Array x, DType dtype, SourceLine source, bool weak) {
  const Node& node = checked_node(x, "astype", source);
  if (node.type.dtype() == dtype && node.type.weak() == weak) return x;
  if (node.kind == NodeKind::literal && dtype != DType::prng_key) {
    return convert_literal(static_cast<const LiteralNode&>(node), dtype, weak);
  }
  if (node.type.dtype() == dtype && !weak)
    return x;  // weakness alone needs no cast: later operations decide by it
  return bind(convert_element_type_p, std::move(x), ConvertParams(dtype, weak), source);
}

void promote(Operand& a, Operand& b, const char* what) {
  const ShapedArray& ta = type_of(a, what);
  const ShapedArray& tb = type_of(b, what);
  if (ta.dtype() == tb.dtype()) return;
  if (ta.dtype() == DType::prng_key || tb.dtype() == DType::prng_key) {
    throw TypeError(std::string(what) + ": operands of types " + to_string(ta) + " and " +
                    to_string(tb) + ": a random key is not a number, and has no arithmetic" +
                    at_line(a.source));
  }
  const Promoted to = promote_types(ta.dtype(), ta.weak(), tb.dtype(), tb.weak());
  a.value = convert_operand(std::move(a.value), to.dtype, what, a.source, to.weak);
  b.value = convert_operand(std::move(b.value), to.dtype, what, b.source, to.weak);
}

void promote_inexact(Operand& x, const char* what) {
  const ShapedArray& t = type_of(x, what);
  const DType to = to_inexact(t.dtype());
  if (to != t.dtype()) x.value = convert(std::move(x.value), to, x.source, t.weak());
}

void promote_inexact(Operand& a, Operand& b, const char* what) {
  promote(a, b, what);
  promote_inexact(a, what);
  promote_inexact(b, what);
}

Shape broadcast_shapes(std::span<const Shape> shapes, const char* what, SourceLine source,
                       std::initializer_list<const Array*> operands) {
  std::size_t rank = 0;
  for (const Shape& s : shapes) rank = std::max(rank, s.size());
  Shape out;
  out.resize(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    std::int64_t extent = 1;
    for (const Shape& s : shapes) {
      if (d + s.size() < rank) continue;
      const std::int64_t e = s[d + s.size() - rank];
      if (e == 1 || e == extent) continue;
      if (extent != 1) {
        std::string all, captured;
        for (const Shape& t : shapes) all += (all.empty() ? "" : ", ") + to_string(t);
        std::size_t operand = 0;
        for (const Array* x : operands) captured += captured_text(*x, operand++);
        throw ValueError(std::string(what) + ": the shapes " + all +
                         " do not broadcast: dims are aligned from the last, "
                         "and of each pair both are equal or one is 1" +
                         captured + at_line(source));
      }
      extent = e;
    }
    out[d] = extent;
  }
  return out;
}

Array broadcast_array(Array x, const Shape& shape, SourceLine source) {
  const Shape from = checked_node(x, "broadcast", source).type.dims();
  if (from == shape) return x;
  BroadcastParams params;
  params.shape = shape;
  for (std::size_t d = 0; d < from.size(); ++d)
    params.dims.push_back(static_cast<std::int64_t>(shape.size() - from.size() + d));
  return bind(broadcast_in_dim_p, std::move(x), params, source);
}

Array vary_and_broadcast(Array x, const Shape& shape, const AxisSet& axes, SourceLine source) {
  const ShapedArray& type = node_of(x)->type;
  Trace& trace = current_trace();
  // Operations that run at once have no transpose, and computing one value for all devices is
  // cheaper.
  const bool is_kept = trace.staged() || trace.transforms();
  if (is_kept && !(type.dims() == shape) && !type.axes().contains(axes) &&
      trace.checks_variance() && trace.casts())
    x = trace.vary(x, axes, source);
  return broadcast_array(std::move(x), shape, source);
}

void broadcast(Operand& a, Operand& b, const char* what) {
  const ShapedArray& ta = type_of(a, what);
  const ShapedArray& tb = type_of(b, what);
  if (ta.dims() == tb.dims() || ta.rank() == 0 || tb.rank() == 0) return;
  const Shape shapes[] = {ta.dims(), tb.dims()};
  const Shape shape = broadcast_shapes(shapes, what, a.source, {&a.value, &b.value});
  const AxisSet axes = ta.axes() | tb.axes();
  a.value = vary_and_broadcast(std::move(a.value), shape, axes, a.source);
  b.value = vary_and_broadcast(std::move(b.value), shape, axes, b.source);
}

}  // namespace shmap
