// floor_divide and remainder: NumPy's division, which rounds down, from division and remainder that
// round towards zero.
#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

// Whether y is a host scalar other than 0, so that division by it needs no special case.
bool is_safe_divisor(const Array& y, SourceLine source) {
  const Node* node = node_of(y);
  return node->kind == NodeKind::literal &&
         convert(y, DType::f64, source).item<double>(source) != 0;
}

// Whether x holds signed integers and y is a host scalar greater than 0. floor_divide and remainder
// then take fewer operations.
bool is_signed_by_positive(const Array& x, const Array& y, SourceLine source) {
  const DType t = x.dtype();
  return is_integer(t) && !is_unsigned_int(t) && node_of(y)->kind == NodeKind::literal &&
         convert(y, DType::i64, source).item<std::int64_t>(source) > 0;
}

// For signed integers: -1 (all bits set) where x is negative, otherwise 0.
Array sign_bits(const Array& x, SourceLine source) {
  const Array last = number_like(x, 8 * itemsize(x.dtype()) - 1, source);
  return bind(shift_right_arithmetic_p, x, last, no_params, source);
}

}  // namespace

// lax.rem has the dividend's sign. A remainder whose sign differs from the divisor's gets the
// divisor added.
Array remainder(Operand a, Operand b) {
  const FunctionScope scope("remainder", {&a.value, &b.value}, a.source);
  promote(a, b, "remainder");
  broadcast(a, b, "remainder");
  if (a.value.dtype() == DType::bool_) {
    throw TypeError("remainder: of two bools: convert one with astype" + at_line(a.source));
  }
  const SourceLine s = a.source;
  const Array x = a.value;
  Array y = b.value;
  // For integers, the remainder by 0 is 0, as in NumPy.
  if (is_integer(x.dtype()) && !is_safe_divisor(y, s)) {
    const Array by_zero = bind(eq_p, y, number_like(y, 0, s), no_params, s);
    y = bind_where(by_zero, number_like(y, 1, s), y, s);
  }
  const Array r = bind(rem_p, x, y, no_params, s);
  if (is_unsigned_int(r.dtype())) return r;
  if (is_signed_by_positive(r, y, s)) {
    const Array moved = bind(bit_and_p, sign_bits(r, s), y, no_params, s);
    return bind(add_p, r, moved, no_params, s);
  }
  const Array zero = number_like(r, 0, s);
  const Array nonzero = bind(ne_p, r, zero, no_params, s);
  const Array signs_differ = bind(ne_p, bind(lt_p, r, zero, no_params, s),
                                  bind(lt_p, y, zero, no_params, s), no_params, s);
  return bind_where(bind(bit_and_p, nonzero, signs_differ, no_params, s),
                    bind(add_p, r, y, no_params, s), r, s);
}

Array floor_divide(Operand a, Operand b) {
  const FunctionScope scope("floor_divide", {&a.value, &b.value}, a.source);
  promote(a, b, "floor_divide");
  broadcast(a, b, "floor_divide");
  const SourceLine s = a.source;
  if (a.value.dtype() == DType::bool_)
    throw TypeError("floor_divide: of two bools: convert one with astype" + at_line(s));
  const Array x = a.value, y = b.value;
  const DType t = x.dtype();
  if (is_unsigned_int(t)) return bind(div_p, x, y, no_params, s);
  if (is_signed_by_positive(x, y, s)) {
    // For negative x the complement -x - 1 is divided, which cannot overflow; the complement of its
    // quotient is the floor of x / y.
    const Array signs = sign_bits(x, s);
    const Array size = bind(bit_xor_p, x, signs, no_params, s);
    return bind(bit_xor_p, bind(div_p, size, y, no_params, s), signs, no_params, s);
  }
  if (!is_floating(t)) {
    const Array q = bind(div_p, x, y, no_params, s);
    const Array signs_differ =
        bind(ne_p, bind(sign_p, x, no_params, s), bind(sign_p, y, no_params, s), no_params, s);
    const Array inexact =
        bind(ne_p, bind(rem_p, x, y, no_params, s), number_like(q, 0, s), no_params, s);
    return bind_where(bind(bit_and_p, signs_differ, inexact, no_params, s),
                      bind(sub_p, q, number_like(q, 1, s), no_params, s), q, s);
  }
  // NumPy's divmod of floats: x minus the remainder is divided, so that the quotient is whole. By 0
  // the remainder is NaN and is not subtracted.
  const Array r = bind(rem_p, x, y, no_params, s);
  Array divisible = bind(sub_p, x, r, no_params, s);
  if (!is_safe_divisor(y, s)) {
    const Array by_zero = bind(eq_p, y, number_like(y, 0, s), no_params, s);
    divisible = bind_where(by_zero, x, divisible, s);
  }
  const Array q = bind(div_p, divisible, y, no_params, s);
  const Array inexact = bind(ne_p, r, number_like(r, 0, s), no_params, s);
  const Array signs_differ =
      bind(ne_p, bind(sign_p, y, no_params, s), bind(sign_p, r, no_params, s), no_params, s);
  const Array down = bind(bit_and_p, inexact, signs_differ, no_params, s);
  return bind(round_p, bind_where(down, bind(sub_p, q, number_like(q, 1, s), no_params, s), q, s),
              no_params, s);
}

}  // namespace shmap
