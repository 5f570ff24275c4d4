// The user's elementwise functions and operators: promote dtypes, broadcast shapes, and bind a
// primitive of elementwise.h.
#include <limits>

#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

Array unary(const Primitive& p, Operand&& x) {
  type_of(x, p.name);
  return bind(p, std::move(x.value), no_params, x.source);
}
Array unary_inexact(const Primitive& p, Operand&& x) {
  promote_inexact(x, p.name);
  return bind(p, std::move(x.value), no_params, x.source);
}
// Binds p to operands of one dtype.
Array bind_broadcast(const Primitive& p, Operand&& a, Operand&& b) {
  broadcast(a, b, p.name);
  return bind(p, std::move(a.value), std::move(b.value), no_params, a.source);
}
Array binary(const Primitive& p, Operand&& a, Operand&& b) {
  promote(a, b, p.name);
  return bind_broadcast(p, std::move(a), std::move(b));
}
// NumPy's + of two bools is "or", and its * is "and".
Array arithmetic(const Primitive& p, const Primitive& of_bools, Operand&& a, Operand&& b) {
  promote(a, b, p.name);
  const bool bools = node_of(a.value)->type.dtype() == DType::bool_;
  return bind_broadcast(bools ? of_bools : p, std::move(a), std::move(b));
}
// The least or the greatest value of an integer dtype.
Array extreme_of(DType t, bool greatest, SourceLine source) {
  const int bits = 8 * itemsize(t) - (is_unsigned_int(t) ? 0 : 1);
  const std::uint64_t most = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  if (greatest) return convert(Array(most), t, source);
  return convert(Array(is_unsigned_int(t) ? std::int64_t{0} : -static_cast<std::int64_t>(most) - 1),
                 t, source);
}

// A host scalar beyond the range of the array's dtype is compared by its own value: it is replaced
// by the extreme value of the dtype on that side, with a comparison that gives the same answer for
// every element.
Array compare(const Primitive& p, Operand&& a, Operand&& b) {
  const int left = beyond(a.value, type_of(b, p.name));
  const int right = beyond(b.value, type_of(a, p.name));
  if (left == 0 && right == 0) return binary(p, std::move(a), std::move(b));
  const SourceLine source = a.source;
  const Array x = std::move(left != 0 ? b.value : a.value);
  const CompareOp op = p.elementwise_row->compare();
  if (op == CompareOp::eq || op == CompareOp::ne)
    return bind(op == CompareOp::eq ? ne_p : eq_p, x, x, no_params, source);
  // whether the question is if x is below the scalar
  const bool below = (op == CompareOp::lt || op == CompareOp::le) == (right != 0);
  const int side = left != 0 ? left : right;
  const Array edge = extreme_of(x.dtype(), side > 0, source);
  const Primitive& asked = side > 0 ? (below ? le_p : gt_p) : (below ? lt_p : ge_p);
  return bind(asked, x, edge, no_params, source);
}
Array binary_inexact(const Primitive& p, Operand&& a, Operand&& b) {
  promote_inexact(a, b, p.name);
  return bind_broadcast(p, std::move(a), std::move(b));
}

void want_integers(const Operand& a, const Operand& b, const char* what, bool bool_too) {
  for (const Operand* x : {&a, &b}) {
    const DType t = type_of(*x, what).dtype();
    if (!is_integer(t) && !(bool_too && t == DType::bool_)) {
      throw TypeError(std::string(what) + ": an operand has dtype " + short_name(t) +
                      ", and integers" + (bool_too ? " or bools" : "") + " are wanted" +
                      at_line(a.source));
    }
  }
}

Array bitwise(const Primitive& p, Operand&& a, Operand&& b, const char* what) {
  want_integers(a, b, what, true);
  return binary(p, std::move(a), std::move(b));
}

// x as bools: x != 0.
Operand truth(Operand&& x, const char* what) {
  const DType t = type_of(x, what).dtype();
  if (t == DType::bool_) return std::move(x);
  const SourceLine source = x.source;
  return Operand(bind(ne_p, std::move(x.value), convert(Array(0), t, source), no_params, source),
                 source.file, source.line);
}

Array logical(const Primitive& p, Operand&& a, Operand&& b, const char* what) {
  const FunctionScope scope(what, {&a.value, &b.value}, a.source);
  return binary(p, truth(std::move(a), what), truth(std::move(b), what));
}

// Integers and bools are whole already; floats go through the primitive.
Array rounding(const Primitive& p, Operand&& x) {
  if (!is_floating(type_of(x, p.name).dtype())) return std::move(x.value);
  return unary(p, std::move(x));
}

}  // namespace

Array number_like(const Array& x, double value, SourceLine source) {
  const ShapedArray& t = checked_node(x, "a number", source).type;
  return convert(Array(value), t.dtype(), source, t.weak());
}

Array bind_where(Array pred, Array on_true, Array on_false, SourceLine source) {
  Array in[3] = {std::move(pred), std::move(on_false), std::move(on_true)};
  return bind(select_n_p, in, no_params, source);
}

#define SHMAP_FLOAT_FUNCTION(name, ...) \
  Array name(Operand x) { return unary_inexact(name##_p, std::move(x)); }
SHMAP_FLOAT_FUNCTIONS(SHMAP_FLOAT_FUNCTION)

Array floor(Operand x) { return rounding(floor_p, std::move(x)); }
Array ceil(Operand x) { return rounding(ceil_p, std::move(x)); }
Array round(Operand x) { return rounding(round_p, std::move(x)); }

Array abs(Operand x) {
  const DType t = type_of(x, "abs").dtype();
  if (t == DType::bool_ || is_unsigned_int(t)) return std::move(x.value);
  return unary(abs_p, std::move(x));
}
Array sign(Operand x) { return unary(sign_p, std::move(x)); }
Array square(Operand x) { return unary(square_p, std::move(x)); }
Array reciprocal(Operand x) {
  promote_inexact(x, "reciprocal");
  Array one = number_like(x.value, 1, x.source);
  return bind(div_p, std::move(one), std::move(x.value), no_params, x.source);
}
Array isnan(Operand x) {
  type_of(x, "isnan");
  return bind(ne_p, x.value, x.value, no_params, x.source);
}
Array isinf(Operand x) {
  const FunctionScope scope("isinf", {&x.value}, x.source);
  const SourceLine s = x.source;
  if (!is_floating(type_of(x, "isinf").dtype())) return bind(ne_p, x.value, x.value, no_params, s);
  const Array size = bind(abs_p, std::move(x.value), no_params, s);
  return bind(eq_p, size, number_like(size, std::numeric_limits<double>::infinity(), s), no_params,
              s);
}
Array isfinite(Operand x) {
  // Integers are finite: x == x is true for all.
  if (!is_floating(type_of(x, "isfinite").dtype()))
    return bind(eq_p, x.value, x.value, no_params, x.source);
  return unary(is_finite_p, std::move(x));
}

Array logical_not(Operand x) { return unary(not__p, truth(std::move(x), "logical_not")); }
Array bitwise_not(Operand x) {
  want_integers(x, x, "bitwise_not", true);
  return unary(not__p, std::move(x));
}
Array logical_and(Operand a, Operand b) {
  return logical(bit_and_p, std::move(a), std::move(b), "logical_and");
}
Array logical_or(Operand a, Operand b) {
  return logical(bit_or_p, std::move(a), std::move(b), "logical_or");
}
Array logical_xor(Operand a, Operand b) {
  return logical(bit_xor_p, std::move(a), std::move(b), "logical_xor");
}
Array bitwise_and(Operand a, Operand b) {
  return bitwise(bit_and_p, std::move(a), std::move(b), "bitwise_and");
}
Array bitwise_or(Operand a, Operand b) {
  return bitwise(bit_or_p, std::move(a), std::move(b), "bitwise_or");
}
Array bitwise_xor(Operand a, Operand b) {
  return bitwise(bit_xor_p, std::move(a), std::move(b), "bitwise_xor");
}

Array population_count(Operand x) {
  want_integers(x, x, "population_count", false);
  return unary(population_count_p, std::move(x));
}
Array clz(Operand x) {
  want_integers(x, x, "clz", false);
  return unary(clz_p, std::move(x));
}

Array left_shift(Operand a, Operand b) {
  want_integers(a, b, "left_shift", false);
  return binary(shift_left_p, std::move(a), std::move(b));
}
Array right_shift(Operand a, Operand b) {
  want_integers(a, b, "right_shift", false);
  promote(a, b, "right_shift");
  const bool is_signed = is_signed_int(a.value.dtype());
  return binary(is_signed ? shift_right_arithmetic_p : shift_right_logical_p, std::move(a),
                std::move(b));
}

Array atan2(Operand a, Operand b) { return binary_inexact(atan2_p, std::move(a), std::move(b)); }
// The bit patterns of floats of one sign are ordered as their magnitudes, so that the next float
// has the next pattern.
Array nextafter(Operand a, Operand b) {
  const FunctionScope scope("nextafter", {&a.value, &b.value}, a.source);
  promote_inexact(a, b, "nextafter");
  broadcast(a, b, "nextafter");
  const SourceLine s = a.source;
  const auto op = [&](const Primitive& p, const Array& x, const Array& y) {
    return bind(p, x, y, no_params, s);
  };
  const Array x = bind(stop_gradient_p, std::move(a.value), no_params, s);
  const Array to = bind(stop_gradient_p, std::move(b.value), no_params, s);
  const DType t = x.dtype();
  const DType bits = itemsize(t) == 2 ? DType::i16 : itemsize(t) == 4 ? DType::i32 : DType::i64;
  const Array zero = number_like(x, 0, s);
  const Array pattern = bind(bitcast_convert_type_p, x, ConvertParams(bits), s);
  const Array one = number_like(pattern, 1, s);
  const Array outwards = op(eq_p, op(lt_p, x, to), op(gt_p, x, zero));
  const Array moved = bind_where(outwards, op(add_p, pattern, one), op(sub_p, pattern, one), s);
  // From 0 the next float is the smallest one with the sign of `to`.
  const Array sign = op(bit_and_p, bind(bitcast_convert_type_p, to, ConvertParams(bits), s),
                        extreme_of(bits, false, s));
  const Array smallest = op(bit_or_p, sign, one);
  const Array next = bind(bitcast_convert_type_p, bind_where(op(eq_p, x, zero), smallest, moved, s),
                          ConvertParams(t), s);
  const Array there = bind_where(op(eq_p, x, to), to, next, s);
  const Array is_nan = op(bit_or_p, op(ne_p, x, x), op(ne_p, to, to));
  return bind_where(is_nan, op(add_p, x, to), there, s);
}
Array maximum(Operand a, Operand b) {
  const FunctionScope scope("maximum", {&a.value, &b.value}, a.source);
  return binary(max_p, std::move(a), std::move(b));
}
Array minimum(Operand a, Operand b) {
  const FunctionScope scope("minimum", {&a.value, &b.value}, a.source);
  return binary(min_p, std::move(a), std::move(b));
}

Array pow(Operand a, Operand b) {
  if (type_of(a, "pow").dtype() == DType::bool_ && type_of(b, "pow").dtype() == DType::bool_) {
    throw TypeError("pow: of two bools: convert one with astype" + at_line(a.source));
  }
  return binary(pow_p, std::move(a), std::move(b));
}

Array clip(Operand x, Operand lo, Operand hi) {
  const FunctionScope scope("clip", {&x.value, &lo.value, &hi.value}, x.source);
  const SourceLine s = x.source;
  Array above = maximum(std::move(x), std::move(lo));
  return minimum(Operand(std::move(above), s.file, s.line), std::move(hi));
}

Array where(Operand pred, Operand on_true, Operand on_false) {
  const FunctionScope scope("where", {&pred.value, &on_true.value, &on_false.value}, pred.source);
  const SourceLine s = pred.source;
  pred = truth(std::move(pred), "where");
  promote(on_true, on_false, "where");
  const Shape shapes[] = {type_of(pred, "where").dims(), type_of(on_true, "where").dims(),
                          type_of(on_false, "where").dims()};
  const Shape shape =
      broadcast_shapes(shapes, "where", s, {&pred.value, &on_true.value, &on_false.value});
  AxisSet axes;
  for (const Operand* x : {&pred, &on_true, &on_false})
    axes = axes | node_of(x->value)->type.axes();
  for (Operand* x : {&pred, &on_true, &on_false}) {
    if (x->value.ndim() != 0) x->value = vary_and_broadcast(std::move(x->value), shape, axes, s);
  }
  return bind_where(std::move(pred.value), std::move(on_true.value), std::move(on_false.value), s);
}

Array select(Operand pred, Operand on_true, Operand on_false) {
  const FunctionScope scope("select", {&pred.value, &on_true.value, &on_false.value}, pred.source);
  const SourceLine s = pred.source;
  type_of(pred, "select");
  promote(on_true, on_false, "select");
  return bind_where(std::move(pred.value), std::move(on_true.value), std::move(on_false.value), s);
}

Array astype(Operand x, DType dtype) {
  type_of(x, "astype");
  return convert(std::move(x.value), dtype, x.source);
}
Array bitcast(Operand x, DType dtype) {
  if (type_of(x, "bitcast").dtype() == DType::prng_key || dtype == DType::prng_key) {
    throw TypeError("bitcast: " + to_string(x.value.type()) + " to " + short_name(dtype) +
                    ": the bits of random keys are not reinterpreted" + at_line(x.source));
  }
  return bind(bitcast_convert_type_p, std::move(x.value), ConvertParams(dtype), x.source);
}
// A stored value or a literal has no tangent.
Array stop_gradient(Operand x) {
  const NodeKind kind = checked_node(x.value, "stop_gradient", x.source).kind;
  if (kind == NodeKind::literal || kind == NodeKind::stored) return std::move(x.value);
  return bind(stop_gradient_p, std::move(x.value), no_params, x.source);
}

// ---- operators

Array operator+(Operand x) { return std::move(x.value); }
Array operator-(Operand x) {
  if (type_of(x, "neg").dtype() == DType::bool_) {
    throw TypeError("neg: of a bool array: use ~x or logical_not(x)" + at_line(x.source));
  }
  return unary(neg_p, std::move(x));
}
Array operator~(Operand x) { return bitwise_not(std::move(x)); }
Array operator+(Operand a, Operand b) {
  return arithmetic(add_p, bit_or_p, std::move(a), std::move(b));
}
Array operator-(Operand a, Operand b) { return binary(sub_p, std::move(a), std::move(b)); }
Array operator*(Operand a, Operand b) {
  return arithmetic(mul_p, bit_and_p, std::move(a), std::move(b));
}
Array operator/(Operand a, Operand b) { return binary_inexact(div_p, std::move(a), std::move(b)); }
Array operator%(Operand a, Operand b) { return remainder(std::move(a), std::move(b)); }
Array operator&(Operand a, Operand b) { return bitwise_and(std::move(a), std::move(b)); }
Array operator|(Operand a, Operand b) { return bitwise_or(std::move(a), std::move(b)); }
Array operator^(Operand a, Operand b) { return bitwise_xor(std::move(a), std::move(b)); }
Array operator<<(Operand a, Operand b) { return left_shift(std::move(a), std::move(b)); }
Array operator>>(Operand a, Operand b) { return right_shift(std::move(a), std::move(b)); }
Array operator==(Operand a, Operand b) { return compare(eq_p, std::move(a), std::move(b)); }
Array operator!=(Operand a, Operand b) { return compare(ne_p, std::move(a), std::move(b)); }
Array operator<(Operand a, Operand b) { return compare(lt_p, std::move(a), std::move(b)); }
Array operator<=(Operand a, Operand b) { return compare(le_p, std::move(a), std::move(b)); }
Array operator>(Operand a, Operand b) { return compare(gt_p, std::move(a), std::move(b)); }
Array operator>=(Operand a, Operand b) { return compare(ge_p, std::move(a), std::move(b)); }

namespace {
// x += y moves x into the operation, which can then work in place where x was the sole owner. The
// operands are checked before, so that a failed call leaves x unchanged.
Operand give_up(Array& x, const Operand& b, const char* what) {
  const ShapedArray& tx = type_of(Operand(x, b.source.file, b.source.line), what);
  const ShapedArray& tb = type_of(b, what);
  const DType to = promote_types(tx.dtype(), tx.weak(), tb.dtype(), tb.weak()).dtype;
  check_scalar_fits(b.value, to, what, b.source);
  const Shape shapes[] = {tx.dims(), tb.dims()};
  broadcast_shapes(shapes, what, b.source);
  return Operand(std::move(x), b.source.file, b.source.line);
}
}  // namespace

// Two statements, because the order of evaluation of arguments is unspecified, and b is moved from.
#define SHMAP_ASSIGNMENT(op, name)               \
  Array& Array::operator op##=(Operand b)& {     \
    Operand a = give_up(*this, b, name);         \
    return *this = std::move(a) op std::move(b); \
  }
SHMAP_ASSIGNMENT(+, "add")
SHMAP_ASSIGNMENT(-, "sub")
SHMAP_ASSIGNMENT(*, "mul")
SHMAP_ASSIGNMENT(/, "div")
#undef SHMAP_ASSIGNMENT

}  // namespace shmap
