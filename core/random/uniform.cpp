// Bits, uniforms, integers and Bernoulli samples.
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/float_format.h"
#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/random/samplers.h"
#include "shmap/random.h"

namespace shmap {

namespace draw {

void check_float(const BitSource& from, DType dtype) {
  if (is_floating(dtype)) return;
  throw TypeError(std::string(from.what()) + ": dtype " + to_string(dtype) +
                  ": wanted f16, bf16, f32 or f64" + at_line(from.source()));
}
void check_integer(const BitSource& from, DType dtype) {
  if (is_integer(dtype)) return;
  throw TypeError(std::string(from.what()) + ": dtype " + to_string(dtype) +
                  ": wanted an integer type" + at_line(from.source()));
}

Array parameter(const BitSource& from, Operand x, const char* name, const Shape& shape,
                DType dtype) {
  const ShapedArray type = type_of(x, from.what());
  if (type.dtype() == DType::prng_key) {
    throw TypeError(std::string(from.what()) + ": " + name + " is a key, of type " +
                    to_string(type) + ": wanted a number" + at_line(from.source()));
  }
  Array value = convert(std::move(x.value), dtype, from.source());
  if (type.rank() == 0) return value;
  const Shape shapes[] = {type.dims(), shape};
  if (broadcast_shapes(shapes, from.what(), from.source()) == shape)
    return broadcast_array(std::move(value), shape, from.source());
  throw ValueError(std::string(from.what()) + ": " + name + " of type " + to_string(type) +
                   " does not broadcast to the result's shape " + to_string(shape) +
                   at_line(from.source()));
}

int random_width(DType dtype) { return dtype == DType::bf16 ? 8 : 8 * itemsize(dtype); }

// Makes floats in [1, 2) of random mantissas, and subtracts 1.
Array unit_floats(const Array& bits, DType dtype, SourceLine source) {
  const RuleOps op(source);
  const double one = static_cast<double>(one_bits(dtype));
  const DType words = itemsize(dtype) == 2  ? DType::u16
                      : dtype == DType::f32 ? DType::u32
                                            : DType::u64;
  Array x = convert(bits, words, source);
  x = op(shift_right_logical_p, x, op.number(random_width(dtype) - mantissa_bits(dtype), x));
  x = op(bit_or_p, x, op.number(one, x));
  x = bind(bitcast_convert_type_p, std::move(x), ConvertParams(dtype), source);
  return op(sub_p, x, op.number(1, x));
}

Array scaled(const Array& floats, const Array& lo, const Array& hi, SourceLine source) {
  const RuleOps op(source);
  const Array wide = op(add_p, op(mul_p, floats, op(sub_p, hi, lo)), lo);
  return op(max_p, lo, wide);
}

Array uniform(const BitSource& from, const Shape& shape, DType dtype) {
  return unit_floats(from.bits(random_width(dtype), shape), dtype, from.source());
}
Array uniform(const BitSource& from, const Shape& shape, DType dtype, double lo, double hi) {
  const Array floats = uniform(from, shape, dtype);
  const RuleOps op = from.ops();
  // The difference hi - lo is rounded to the dtype, as for array bounds.
  return scaled(floats, op.number(lo, floats), op.number(hi, floats), from.source());
}

Array rademacher(const BitSource& from, const Shape& shape, DType dtype) {
  const RuleOps op = from.ops();
  const Array u = uniform(from, shape, DType::f32);
  const Array up = convert(op(lt_p, u, op.number(0.5, u)), dtype, from.source());
  return op(sub_p, op(mul_p, op.number(2, up), up), op.number(1, up));
}

namespace {

struct Limits {
  std::int64_t min;
  std::uint64_t max;
};
Limits limits_of(DType dtype) {
  const int bits = 8 * itemsize(dtype);
  const std::uint64_t all = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  if (is_unsigned_int(dtype)) return {0, all};
  return {-static_cast<std::int64_t>(all / 2) - 1, all / 2};
}
Array integer(DType dtype, std::int64_t value, SourceLine s) {
  return convert(Array(value), dtype, s);
}
Array integer(DType dtype, std::uint64_t value, SourceLine s) {
  return convert(Array(value), dtype, s);
}

// x in `dtype`, clipped to its range.
Array clipped(const Array& x, DType dtype, SourceLine s) {
  const RuleOps op(s);
  const DType from = node_of(x)->type.dtype();
  const Limits have = limits_of(from), want = limits_of(dtype);
  Array y = x;
  if (want.min > have.min) y = op(max_p, y, integer(from, want.min, s));
  if (want.max < have.max) y = op(min_p, y, integer(from, want.max, s));
  return convert(y, dtype, s);
}

// x in i32, clipped to these bounds.
Array within(const Array& x, std::int64_t lo, std::int64_t hi, SourceLine s) {
  const RuleOps op(s);
  const Array y = convert(x, DType::i32, s);
  return op(min_p, op(max_p, y, integer(DType::i32, lo, s)), integer(DType::i32, hi, s));
}

}  // namespace

// Uses twice as many bits as the dtype has, modulo the span, so that the bias is small.
Array randint(const BitSource& from, const Shape& shape, Array lo, Array hi, DType dtype) {
  const RuleOps op = from.ops();
  const SourceLine s = from.source();
  const DType given = node_of(hi)->type.dtype();
  const Limits limits = limits_of(dtype);
  Array beyond = convert(Array(false), DType::bool_, s);
  if (limits_of(given).max > limits.max) beyond = op(gt_p, hi, integer(given, limits.max, s));
  lo = clipped(lo, dtype, s);
  hi = clipped(hi, dtype, s);
  const int width = 8 * itemsize(dtype);
  const std::vector<BitSource> keys = from.split(2);
  const Array high = keys[0].bits(width, shape), low = keys[1].bits(width, shape);
  const DType words = node_of(high)->type.dtype();
  const Array one = integer(words, std::int64_t{1}, s);
  Array span = convert(op(sub_p, hi, lo), words, s);
  span = op.select(op(le_p, hi, lo), op.to_shape(one, node_of(span)->type.dims()), span);
  const Array stretched = op(bit_and_p, beyond, op(gt_p, hi, lo));
  span = op.select(stretched, op(add_p, span, one), span);
  Array factor = integer(words, std::int64_t{1} << (width / 2), s);
  factor = op(rem_p, factor, span);
  factor = op(rem_p, op(mul_p, factor, factor), span);
  Array offset = op(add_p, op(mul_p, op(rem_p, high, span), factor), op(rem_p, low, span));
  offset = op(rem_p, offset, span);
  return op(add_p, lo, convert(offset, dtype, s));
}

}  // namespace draw

namespace {
// True if x is a host scalar of that value.
bool is_number(const Array& x, double value) {
  const Node* node = node_of(x);
  if (!node || node->kind != NodeKind::literal || !is_floating(node->type.dtype())) return false;
  const auto& literal = static_cast<const LiteralNode&>(*node);
  if (literal.type.dtype() == DType::f32)
    return *reinterpret_cast<const float*>(literal.value) == static_cast<float>(value);
  return literal.type.dtype() == DType::f64 &&
         *reinterpret_cast<const double*>(literal.value) == value;
}
}  // namespace

Array random::bits(Key key, Shape shape, DType dtype) {
  const draw::BitSource from(std::move(key), "bits");
  if (!is_unsigned_int(dtype)) {
    throw TypeError("bits: dtype " + to_string(dtype) + ": wanted u8, u16, u32 or u64" +
                    at_line(from.source()));
  }
  return at_source("bits", from.source(), [&] { return from.bits(8 * itemsize(dtype), shape); });
}

Array random::uniform(Key key, Shape shape, DType dtype, Operand minval, Operand maxval) {
  const FunctionScope scope("uniform", {&key.data, &minval.value, &maxval.value}, key.source);
  const draw::BitSource from(std::move(key), "uniform");
  draw::check_float(from, dtype);
  return at_source("uniform", from.source(), [&] {
    const Array lo = draw::parameter(from, std::move(minval), "minval", shape, dtype);
    const Array hi = draw::parameter(from, std::move(maxval), "maxval", shape, dtype);
    const Array floats = draw::uniform(from, shape, dtype);
    // scaling by 1 would give the same bits
    if (is_number(lo, 0) && is_number(hi, 1)) return floats;
    return draw::scaled(floats, lo, hi, from.source());
  });
}

Array random::randint(Key key, Shape shape, Operand minval, Operand maxval, DType dtype) {
  const FunctionScope scope("randint", {&key.data, &minval.value, &maxval.value}, key.source);
  const draw::BitSource from(std::move(key), "randint");
  draw::check_integer(from, dtype);
  const auto bound = [&](Operand& x, const char* name) {
    const ShapedArray type = type_of(x, "randint");
    if (!is_integer(type.dtype())) {
      throw TypeError(std::string("randint: ") + name + " has type " + to_string(type) +
                      ": wanted an integer" + at_line(from.source()));
    }
    return draw::parameter(from, std::move(x), name, shape, type.dtype());
  };
  return at_source("randint", from.source(), [&] {
    Array lo = bound(minval, "minval"), hi = bound(maxval, "maxval");
    if (itemsize(dtype) >= 4)
      return draw::randint(from, shape, std::move(lo), std::move(hi), dtype);
    // Narrow dtypes are drawn in 32 bits, since fewer bits would be biased.
    const draw::Limits limits = draw::limits_of(dtype);
    const auto most = static_cast<std::int64_t>(limits.max);
    lo = draw::within(lo, limits.min, most, from.source());
    hi = draw::within(hi, limits.min, most + 1, from.source());
    const Array wide = draw::randint(from, shape, std::move(lo), std::move(hi), DType::i32);
    return convert(wide, dtype, from.source());
  });
}

Array random::bernoulli(Key key, Operand p) {
  Shape shape = type_of(p, "bernoulli").dims();
  return bernoulli(std::move(key), std::move(p), std::move(shape));
}
Array random::bernoulli(Key key, Operand p, Shape shape) {
  const FunctionScope scope("bernoulli", {&key.data, &p.value}, key.source);
  const draw::BitSource from(std::move(key), "bernoulli");
  const ShapedArray type = type_of(p, "bernoulli");
  if (!is_floating(type.dtype())) {
    throw TypeError("bernoulli: p has type " + to_string(type) + ": wanted a float, a probability" +
                    at_line(from.source()));
  }
  return at_source("bernoulli", from.source(), [&] {
    // A host double, such as 0.3, counts as a Python float: weak, of the default float dtype.
    const bool host = node_of(p.value)->kind == NodeKind::literal;
    const DType dtype = host && type.weak() ? DType::f32 : type.dtype();
    const Array limit = draw::parameter(from, std::move(p), "p", shape, dtype);
    return from.ops()(lt_p, draw::uniform(from, shape, dtype), limit);
  });
}

Array random::rademacher(Key key, Shape shape, DType dtype) {
  const draw::BitSource from(std::move(key), "rademacher");
  if (!is_integer(dtype)) draw::check_float(from, dtype);
  return at_source("rademacher", from.source(),
                   [&] { return draw::rademacher(from, shape, dtype); });
}

}  // namespace shmap
