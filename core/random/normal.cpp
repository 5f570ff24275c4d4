// Distributions whose samples are functions of one uniform sample.
#include <cmath>
#include <utility>

#include "core/base/float_format.h"
#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/random/samplers.h"
#include "shmap/ops.h"
#include "shmap/random.h"

namespace shmap {

namespace draw {

// Normal samples from floats in [0, 1), which are first scaled to (-1, 1): the smallest float
// becomes the one next to -1.
Array normal_of(const Array& floats, SourceLine source) {
  const RuleOps op(source);
  const DType dtype = node_of(floats)->type.dtype();
  const Array u =
      scaled(floats, op.number(-1 + step_below_one(dtype), floats), op.number(1, floats), source);
  return op(mul_p, op.number(std::sqrt(2.0), u), op(erf_inv_p, u));
}
Array normal(const BitSource& from, const Shape& shape, DType dtype) {
  return normal_of(uniform(from, shape, dtype), from.source());
}

Array exponential(const BitSource& from, const Shape& shape, DType dtype) {
  const RuleOps op = from.ops();
  const Array u = uniform(from, shape, dtype);
  return op(neg_p, op(log1p_p, op(neg_p, u)));
}

Array gumbel(const BitSource& from, const Shape& shape, DType dtype) {
  const RuleOps op = from.ops();
  const Array u = uniform(from, shape, dtype, smallest_normal(dtype), 1);
  return op(neg_p, op(log_p, op(neg_p, op(log_p, u))));
}

namespace {

// Applies f, as a sampler for a shape and a float dtype.
template <class F>
Array sample(random::Key key, const char* what, DType dtype, F f) {
  const BitSource from(std::move(key), what);
  check_float(from, dtype);
  return at_source(what, from.source(), [&] { return f(from, from.ops()); });
}

// The float next to x: above x if `up`, otherwise below. As an integer, its bits differ by one from
// those of x.
Array next_after(const Array& x, bool up, SourceLine source) {
  const RuleOps op(source);
  const DType dtype = node_of(x)->type.dtype();
  const DType words = itemsize(dtype) == 2  ? DType::u16
                      : dtype == DType::f32 ? DType::u32
                                            : DType::u64;
  const auto as = [&](const Array& y, DType to) {
    return bind(bitcast_convert_type_p, y, ConvertParams(to), source);
  };
  const Array bits = as(x, words), one = op.number(1, bits), zero = op.number(0, x);
  const Array away = as(op(add_p, bits, one), dtype), toward = as(op(sub_p, bits, one), dtype);
  const Array positive = op(gt_p, x, zero);
  const Array stepped = op.select(positive, up ? away : toward, up ? toward : away);
  Array least = as(one, dtype);
  if (!up) least = op(neg_p, least);
  const Shape dims = node_of(x)->type.dims();
  const Array moved = op.select(op(eq_p, x, zero), op.to_shape(least, dims), stepped);
  // An infinite x stays as it is.
  const Array far = op.number(up ? HUGE_VAL : -HUGE_VAL, x);
  return op.select(op(eq_p, x, far), x, moved);
}

}  // namespace
}  // namespace draw

using draw::sample;

Array random::normal(Key key, Shape shape, DType dtype) {
  return sample(std::move(key), "normal", dtype, [&](const draw::BitSource& from, RuleOps) {
    return draw::normal(from, shape, dtype);
  });
}

Array random::exponential(Key key, Shape shape, DType dtype) {
  return sample(std::move(key), "exponential", dtype, [&](const draw::BitSource& from, RuleOps) {
    return draw::exponential(from, shape, dtype);
  });
}

Array random::gumbel(Key key, Shape shape, DType dtype) {
  return sample(std::move(key), "gumbel", dtype, [&](const draw::BitSource& from, RuleOps) {
    return draw::gumbel(from, shape, dtype);
  });
}

Array random::laplace(Key key, Shape shape, DType dtype) {
  return sample(std::move(key), "laplace", dtype, [&](const draw::BitSource& from, RuleOps op) {
    const Array u = draw::uniform(from, shape, dtype, -1 + step_below_one(dtype), 1);
    return op(mul_p, op(sign_p, u), op(log1p_p, op(neg_p, op(abs_p, u))));
  });
}

Array random::logistic(Key key, Shape shape, DType dtype) {
  return sample(std::move(key), "logistic", dtype, [&](const draw::BitSource& from, RuleOps op) {
    const Array x = draw::uniform(from, shape, dtype, smallest_normal(dtype), 1);
    return op(sub_p, op(log_p, x), op(log1p_p, op(neg_p, x)));
  });
}

Array random::cauchy(Key key, Shape shape, DType dtype) {
  return sample(std::move(key), "cauchy", dtype, [&](const draw::BitSource& from, RuleOps op) {
    const Array u = draw::uniform(from, shape, dtype, 2 * step_below_one(dtype), 1);
    const Array pi = op.number(3.14159265358979323846, u);
    return op(tan_p, op(mul_p, pi, op(sub_p, u, op.number(0.5, u))));
  });
}

Array random::truncated_normal(Key key, Operand lower, Operand upper) {
  const Shape shapes[] = {type_of(lower, "truncated_normal").dims(),
                          type_of(upper, "truncated_normal").dims()};
  const Shape shape = broadcast_shapes(shapes, "truncated_normal", key.source);
  return truncated_normal(std::move(key), std::move(lower), std::move(upper), shape);
}
Array random::truncated_normal(Key key, Operand lower, Operand upper, Shape shape, DType dtype) {
  const FunctionScope scope("truncated_normal", {&key.data, &lower.value, &upper.value},
                            key.source);
  return sample(
      std::move(key), "truncated_normal", dtype, [&](const draw::BitSource& from, RuleOps op) {
        const Array lo = draw::parameter(from, std::move(lower), "lower", shape, dtype);
        const Array hi = draw::parameter(from, std::move(upper), "upper", shape, dtype);
        const Array root = op.number(std::sqrt(2.0), lo);
        const Array a = op(erf_p, op(div_p, lo, root));
        const Array b = op(erf_p, op(div_p, hi, root));
        const Array u = draw::scaled(draw::uniform(from, shape, dtype), a, b, from.source());
        const Array out = op(mul_p, root, op(erf_inv_p, u));
        // Rounding must not give a bound of the open interval.
        const SourceLine s = from.source();
        const auto bound = [&](const Array& x, bool up) {
          return draw::next_after(stop_gradient(Operand(x, s.file, s.line)), up, s);
        };
        return op(min_p, op(max_p, out, bound(lo, true)), bound(hi, false));
      });
}

}  // namespace shmap
