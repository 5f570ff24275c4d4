// Samplers by rejection: they draw until a candidate is accepted.
#include <cmath>
#include <tuple>
#include <utility>

#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/gamma_sample.h"
#include "core/ops/promote.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/random/samplers.h"
#include "shmap/control_flow.h"
#include "shmap/ops.h"
#include "shmap/random.h"

namespace shmap {

namespace draw {

namespace {

// Draws one sample for each of n keys.
class Each {
 public:
  Each(const BitSource& from, DType dtype, std::int64_t n)
      : from_(from), dtype_(dtype), n_(n), op_(from.source()) {}

  Array uniform(const Array& keys) const {
    return unit_floats(from_.bits_each(keys, random_width(dtype_)), dtype_, source());
  }
  Array normal(const Array& keys) const { return normal_of(uniform(keys), source()); }
  // Key j of each element, from the result of split.
  Array part(const Array& split, std::int64_t j) const { return from_.part(split, j); }
  Array split(const Array& keys, std::int64_t count) const { return from_.split_each(keys, count); }
  Array filled(double value) const {
    return bind_broadcast(convert(Array(value), dtype_, source()), {n_}, {}, source());
  }
  Array any(const Array& x) const { return shmap::any(Operand(x, source().file, source().line)); }
  SourceLine source() const { return op_.source(); }
  const RuleOps& op() const { return op_; }

 private:
  const BitSource& from_;
  DType dtype_;
  std::int64_t n_;
  RuleOps op_;
};

using Three = std::tuple<Array, Array, Array>;
using Four = std::tuple<Array, Array, Array, Array>;

// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000), for a[n] and
// keys[n].
Array gamma_each(const Each& each, Array keys, const Array& a, bool as_log) {
  const RuleOps& op = each.op();
  const SourceLine s = each.source();
  const auto number = [&](double v) { return op.number(v, a); };
  const Array zero = each.filled(0), one = each.filled(1);
  const Array is_large = op(ge_p, a, number(1));
  const Array boosted = op.select(is_large, a, op(add_p, a, number(1)));
  const Array d = op(sub_p, boosted, number(1.0 / 3));
  const Array c = op(div_p, number(1.0 / 3), op(sqrt_p, d));

  Array subkeys = each.split(keys, 2);
  keys = each.part(subkeys, 0);
  subkeys = each.part(subkeys, 1);

  const auto rejected = [&](const Array& x, const Array& v, const Array& u) {
    const Array squeeze = op(sub_p, number(1), op(mul_p, number(0.0331), op(mul_p, x, x)));
    const Array inner = op(add_p, op(sub_p, number(1), v), op(log_p, v));
    const Array bound = op(add_p, op(mul_p, x, number(0.5)), op(mul_p, d, inner));
    return op(bit_and_p, op(ge_p, u, squeeze), op(ge_p, op(log_p, u), bound));
  };
  // Accepted elements keep their values; their keys are no longer used.
  const Four drawn = while_loop(
      [&](Four state) {
        const auto& [key, x, v, u] = state;
        return each.any(rejected(x, v, u));
      },
      [&](Four state) {
        const auto& [key, x, v, u] = state;
        const Array open = rejected(x, v, u);
        const Array parts = each.split(key, 3);
        const Three inner = while_loop(
            [&](Three candidate) {
              const Array& w = std::get<2>(candidate);
              return each.any(op(le_p, w, number(0)));
            },
            [&](Three candidate) {
              const auto& [own, y, w] = candidate;
              const Array still = op(le_p, w, number(0));
              const Array two = each.split(own, 2);
              const Array z = each.normal(each.part(two, 1));
              const Array t = op(add_p, number(1), op(mul_p, z, c));
              return Three{each.part(two, 0), op.select(still, z, y), op.select(still, t, w)};
            },
            Three{each.part(parts, 1), zero, each.filled(-1)}, s);
        const Array& z = std::get<1>(inner);
        const Array& w = std::get<2>(inner);
        const Array cube = op(mul_p, op(mul_p, w, w), w);
        return Four{each.part(parts, 0), op.select(open, op(mul_p, z, z), x),
                    op.select(open, cube, v),
                    op.select(open, each.uniform(each.part(parts, 2)), u)};
      },
      Four{keys, zero, one, each.filled(2)}, s);
  const Array& v = std::get<2>(drawn);

  const Array u = each.uniform(subkeys);
  const Array power = op(div_p, number(1), a);
  if (as_log) {
    const Array logs = op(log1p_p, op(neg_p, u));
    const Array whole = op(bit_or_p, is_large, op(eq_p, logs, number(0)));
    const Array boost = op.select(whole, zero, op(mul_p, logs, power));
    return op(add_p, op(add_p, op(log_p, d), op(log_p, v)), boost);
  }
  const Array boost = op.select(is_large, one, op(pow_p, op(sub_p, number(1), u), power));
  return op(mul_p, op(mul_p, d, v), boost);
}

}  // namespace

Array gamma(const BitSource& from, const Array& a, bool as_log) {
  const SourceLine s = from.source();
  const ShapedArray type = node_of(a)->type;
  const std::int64_t n = type.size();
  const Each each(from, type.dtype(), n);
  // The parameter gets no derivatives: those of accepted candidates would not be the derivatives of
  // the distribution.
  const Array flat = bind_reshape(bind(stop_gradient_p, a, no_params, s), {n}, s);
  const Array drawn = gamma_each(each, from.keys(n), flat, as_log);
  GammaSampleParams params;
  params.log_space = as_log;
  return bind(random_gamma_sample_p, bind_reshape(drawn, type.dims(), s), a, params, s);
}

namespace {

// log(gamma(x)) by Lanczos' sum, for x >= 0.5.
Array log_gamma(const Array& x, const RuleOps& op) {
  constexpr double kTerms[] = {
      676.520368121885098567009190444019, -1259.13921672240287047156078755283,
      771.3234287776530788486528258894,   -176.61502916214059906584551354,
      12.507343278686904814458936853,     -0.13857109526572011689554707,
      9.984369578019570859563e-6,         1.50563273514931155834e-7};
  const auto number = [&](double v) { return op.number(v, x); };
  const Array z = op(sub_p, x, number(1));
  Array sum = op(add_p, op(mul_p, z, number(0)), number(0.99999999999980993227684700473478));
  for (int i = 0; i < 8; ++i)
    sum = op(add_p, sum, op(div_p, number(kTerms[i]), op(add_p, z, number(i + 1))));
  const Array t = op(add_p, number(7.5), z);
  const Array log_t = op(add_p, number(std::log(7.5)), op(log1p_p, op(div_p, z, number(7.5))));
  const Array slope = op(sub_p, op(add_p, z, number(0.5)), op(div_p, t, log_t));
  return op(add_p, op(add_p, number(0.91893853320467274178032973640562), op(mul_p, slope, log_t)),
            op(log_p, sum));
}

// Knuth's algorithm: counts uniforms while their product is above e^-lam. lam: f32, with the shape
// of the result.
Array poisson_small(const BitSource& from, const Array& lam, DType dtype) {
  const RuleOps op = from.ops();
  const SourceLine s = from.source();
  const Shape shape = node_of(lam)->type.dims();
  const auto filled = [&](DType t) {
    return bind_broadcast(convert(Array(0), t, s), shape, {}, s);
  };
  const Array limit = op(neg_p, lam);
  const auto any = [&](const Array& x) { return shmap::any(Operand(x, s.file, s.line)); };
  const Three drawn =
      while_loop([&](Three state) { return any(op(gt_p, std::get<2>(state), limit)); },
                 [&](Three state) {
                   const auto& [key, count, product] = state;
                   const std::vector<BitSource> keys = from.with(key).split(2);
                   const Array more = op.select(op(gt_p, product, limit),
                                                op(add_p, count, op.number(1, count)), count);
                   const Array u = unit_floats(keys[1].bits(32, shape), DType::f32, s);
                   return Three{keys[0].key(), more, op(add_p, product, op(log_p, u))};
                 },
                 Three{from.key(), filled(dtype), filled(DType::f32)}, s);
  const Array& count = std::get<1>(drawn);
  return op(sub_p, count, op.number(1, count));
}

// Hörmann, "The transformed rejection method for generating Poisson random variables" (1993).
Array poisson_large(const BitSource& from, const Array& lam) {
  const RuleOps op = from.ops();
  const SourceLine s = from.source();
  const Shape shape = node_of(lam)->type.dims();
  const auto number = [&](double v) { return op.number(v, lam); };
  const Array log_lam = op(log_p, lam);
  const Array b = op(add_p, number(0.931), op(mul_p, number(2.53), op(sqrt_p, lam)));
  const Array a = op(add_p, number(-0.059), op(mul_p, number(0.02483), b));
  const Array inv_alpha =
      op(add_p, number(1.1239), op(div_p, number(1.1328), op(sub_p, b, number(3.4))));
  const Array v_r = op(sub_p, number(0.9277), op(div_p, number(3.6224), op(sub_p, b, number(2))));
  const auto any = [&](const Array& x) { return shmap::any(Operand(x, s.file, s.line)); };
  const auto draw = [&](const BitSource& key) {
    return unit_floats(key.bits(32, shape), DType::f32, s);
  };
  const auto filled = [&](const Array& value) { return bind_broadcast(value, shape, {}, s); };
  const Three drawn = while_loop(
      [&](Three state) { return any(op(not__p, std::get<2>(state))); },
      [&](Three state) {
        const auto& [key, out, accepted] = state;
        const std::vector<BitSource> keys = from.with(key).split(3);
        const Array u = op(sub_p, draw(keys[1]), number(0.5));
        const Array v = draw(keys[2]);
        const Array near = op(sub_p, number(0.5), op(abs_p, u));
        const Array slope = op(add_p, op(div_p, op(mul_p, number(2), a), near), b);
        const Array k = op(floor_p, op(add_p, op(add_p, op(mul_p, slope, u), lam), number(0.43)));
        const Array denominator = op(add_p, op(div_p, a, op(mul_p, near, near)), b);
        const Array left = op(log_p, op(div_p, op(mul_p, v, inv_alpha), denominator));
        const Array right = op(sub_p, op(add_p, op(neg_p, lam), op(mul_p, k, log_lam)),
                               log_gamma(op(add_p, k, number(1)), op));
        const Array surely = op(bit_and_p, op(ge_p, near, number(0.07)), op(le_p, v, v_r));
        const Array never = op(bit_or_p, op(lt_p, k, number(0)),
                               op(bit_and_p, op(lt_p, near, number(0.013)), op(gt_p, v, near)));
        const Array accept =
            op(bit_or_p, surely, op(bit_and_p, op(not__p, never), op(le_p, left, right)));
        return Three{keys[0].key(), op.select(accept, k, out), op(bit_or_p, accepted, accept)};
      },
      Three{from.key(), filled(number(-1)), filled(convert(Array(false), DType::bool_, s))}, s);
  return std::get<1>(drawn);
}

// gamma or loggamma of `a`, with the shape of `a` or a given shape.
Array gamma_of(random::Key key, Operand a, const Shape* shape, DType dtype, bool as_log) {
  const char* what = as_log ? "loggamma" : "gamma";
  const FunctionScope scope(what, {&key.data, &a.value}, key.source);
  const BitSource from(std::move(key), what);
  const Shape wanted = shape ? *shape : type_of(a, what).dims();
  check_float(from, dtype);
  return at_source(what, from.source(), [&] {
    const Array x = parameter(from, std::move(a), "a", wanted, dtype);
    return gamma(from, broadcast_exactly(x, wanted, what, from.source()), as_log);
  });
}

}  // namespace
}  // namespace draw

Array random::gamma(Key key, Operand a) {
  return draw::gamma_of(std::move(key), std::move(a), nullptr, DType::f32, false);
}
Array random::gamma(Key key, Operand a, Shape shape, DType dtype) {
  return draw::gamma_of(std::move(key), std::move(a), &shape, dtype, false);
}
Array random::loggamma(Key key, Operand a) {
  return draw::gamma_of(std::move(key), std::move(a), nullptr, DType::f32, true);
}
Array random::loggamma(Key key, Operand a, Shape shape, DType dtype) {
  return draw::gamma_of(std::move(key), std::move(a), &shape, dtype, true);
}

Array random::beta(Key key, Operand a, Operand b) {
  const Shape shapes[] = {type_of(a, "beta").dims(), type_of(b, "beta").dims()};
  const Shape shape = broadcast_shapes(shapes, "beta", key.source);
  return beta(std::move(key), std::move(a), std::move(b), shape);
}
Array random::beta(Key key, Operand a, Operand b, Shape shape, DType dtype) {
  const FunctionScope scope("beta", {&key.data, &a.value, &b.value}, key.source);
  const draw::BitSource from(std::move(key), "beta");
  draw::check_float(from, dtype);
  return at_source("beta", from.source(), [&] {
    const RuleOps op = from.ops();
    const auto whole = [&](Operand& x, const char* name) {
      return broadcast_exactly(draw::parameter(from, std::move(x), name, shape, dtype), shape,
                               "beta", from.source());
    };
    const Array left = whole(a, "a"), right = whole(b, "b");
    const auto keys = from.split(2);
    const Array log_a = draw::gamma(keys[0], left, true), log_b = draw::gamma(keys[1], right, true);
    const Array most = op(max_p, log_a, log_b);
    const Array x = op(exp_p, op(sub_p, log_a, most)), y = op(exp_p, op(sub_p, log_b, most));
    return op(div_p, x, op(add_p, x, y));
  });
}

Array random::dirichlet(Key key, Operand alpha) {
  Shape shape = type_of(alpha, "dirichlet").dims();
  if (!shape.empty()) {
    Shape batch;
    for (std::size_t d = 0; d + 1 < shape.size(); ++d) batch.push_back(shape[d]);
    shape = batch;
  }
  return dirichlet(std::move(key), std::move(alpha), shape);
}
Array random::dirichlet(Key key, Operand alpha, Shape shape, DType dtype) {
  const FunctionScope scope("dirichlet", {&key.data, &alpha.value}, key.source);
  const draw::BitSource from(std::move(key), "dirichlet");
  draw::check_float(from, dtype);
  const ShapedArray type = type_of(alpha, "dirichlet");
  if (type.rank() == 0) {
    throw ValueError("dirichlet: alpha has type " + to_string(type) +
                     ": wanted one dim or more; the last one is over the components" +
                     at_line(from.source()));
  }
  return at_source("dirichlet", from.source(), [&] {
    Shape whole = shape;
    whole.push_back(type.dims()[static_cast<std::size_t>(type.rank()) - 1]);
    const Array a = draw::parameter(from, std::move(alpha), "alpha", whole, dtype);
    const Array logs =
        draw::gamma(from, broadcast_exactly(a, whole, "dirichlet", from.source()), true);
    return softmax(Operand(logs, from.source().file, from.source().line), -1);
  });
}

Array random::poisson(Key key, Operand lam) {
  Shape shape = type_of(lam, "poisson").dims();
  return poisson(std::move(key), std::move(lam), shape);
}
Array random::poisson(Key key, Operand lam, Shape shape, DType dtype) {
  const FunctionScope scope("poisson", {&key.data, &lam.value}, key.source);
  const draw::BitSource from(std::move(key), "poisson");
  draw::check_integer(from, dtype);
  return at_source("poisson", from.source(), [&] {
    const RuleOps op = from.ops();
    const SourceLine s = from.source();
    Array rate = draw::parameter(from, std::move(lam), "lam", shape, DType::f32);
    rate = broadcast_exactly(stop_gradient(Operand(rate, s.file, s.line)), shape, "poisson", s);
    const Array small = op(bit_or_p, op(ne_p, rate, rate), op(lt_p, rate, op.number(10, rate)));
    const auto filled = [&](double v) { return op.to_shape(op.number(v, rate), shape); };
    const Array few = draw::poisson_small(from, op.select(small, rate, filled(0)), dtype);
    const Array many = draw::poisson_large(from, op.select(small, filled(1e5), rate));
    const Array out = op.select(small, few, convert(many, dtype, s));
    return op.select(op(eq_p, rate, op.number(0, rate)), op.to_shape(op.number(0, out), shape),
                     out);
  });
}

namespace {
Array generalized(const draw::BitSource& from, const Array& p, const Shape& shape) {
  const RuleOps op = from.ops();
  const DType dtype = node_of(p)->type.dtype();
  const auto keys = from.split(2);
  const Array power = op(div_p, op.number(1, p), p);
  const Array whole = broadcast_exactly(power, shape, from.what(), from.source());
  const Array g = draw::gamma(keys[0], whole, false);
  const Array sign = draw::rademacher(keys[1], shape, dtype);
  return op(mul_p, sign, op(pow_p, g, whole));
}
}  // namespace

Array random::generalized_normal(Key key, Operand p, Shape shape, DType dtype) {
  const FunctionScope scope("generalized_normal", {&key.data, &p.value}, key.source);
  const draw::BitSource from(std::move(key), "generalized_normal");
  draw::check_float(from, dtype);
  return at_source("generalized_normal", from.source(), [&] {
    return generalized(from, draw::parameter(from, std::move(p), "p", shape, dtype), shape);
  });
}

Array random::ball(Key key, std::int64_t d, Operand p, Shape shape, DType dtype) {
  const FunctionScope scope("ball", {&key.data, &p.value}, key.source);
  const draw::BitSource from(std::move(key), "ball");
  draw::check_float(from, dtype);
  if (d < 0 || type_of(p, "ball").rank() != 0) {
    throw ValueError("ball: " + std::to_string(d) + " dimensions and p of type " +
                     to_string(type_of(p, "ball")) + ": wanted 0 or more, and a scalar" +
                     at_line(from.source()));
  }
  return at_source("ball", from.source(), [&] {
    const RuleOps op = from.ops();
    const SourceLine s = from.source();
    const auto keys = from.split(2);
    Shape whole = shape, column = shape;
    whole.push_back(d);
    column.push_back(1);
    const Array power = draw::parameter(from, std::move(p), "p", shape, dtype);
    const Array g = generalized(keys[0], power, whole);
    const Array e = draw::exponential(keys[1], shape, dtype);
    const Array powers = op(pow_p, op(abs_p, g), power);
    const Array norm = op(add_p, sum(Operand(powers, s.file, s.line), -1), e);
    const Array root = op(pow_p, norm, op(div_p, op.number(1, power), power));
    return op(div_p, g, broadcast_array(bind_reshape(root, column, s), whole, s));
  });
}

}  // namespace shmap
