// shmap-test: devices
// attention where it is one equation, under the transforms: its first and second derivatives, vmap
// of them, mapped bodies and split arrays; its text; and that memory grows with the sequence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/planned_bytes.h"

namespace shmap {
namespace {

using testing::HasSubstr;
using testing::Not;

Array wave(const Shape& shape, float start, DType dtype = f32) {
  const Array k = astype(iota(i32, shape.num_elements()), f32);
  return astype(reshape(sin(k * 0.37f + start), shape), dtype);
}

// The same by operations, all scores at once.
Array by_scores(Array q, Array k, Array v, bool causal = false, Array bias = {}, Array mask = {}) {
  const std::int64_t share = q.shape()[2] / k.shape()[2];
  k = repeat(k, static_cast<int>(share), 2);
  v = repeat(v, static_cast<int>(share), 2);
  Array s = einsum("bqhd,bkhd->bhqk", q, k) / std::sqrt(static_cast<float>(q.shape()[3]));
  if (bias.node()) s = s + bias;
  if (mask.node()) s = where(mask, s, -1e30f);
  if (causal) {
    const std::int64_t rows = q.shape()[1], columns = k.shape()[1];
    s = where(reshape(iota(i32, rows), {rows, 1}) >= iota(i32, columns), s, -1e30f);
  }
  return einsum("bhqk,bkhd->bqhd", softmax(s), v);
}

float largest(const Array& a, const Array& b) {
  EXPECT_EQ(a.shape(), b.shape());
  return max(abs(astype(a, f32) - astype(b, f32))).item<float>();
}

using Arrays = std::vector<Array>;

void expect_near(const Arrays& got, const Arrays& want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_LT(largest(got[i], want[i]), tolerance) << i;
}

struct Form {
  bool causal, masks;
};
const Form kForms[] = {{false, false}, {true, false}, {false, true}};

// Attention of q, k and v as one operation.
auto by_name(Form form, Array mask) {
  return [form, mask](Arrays x) {
    return attention(x[0], x[1], x[2],
                     {.mask = form.masks ? mask : Array(), .is_causal = form.causal});
  };
}
auto plainly(Form form, Array mask) {
  return [form, mask](Arrays x) {
    return by_scores(x[0], x[1], x[2], form.causal, {}, form.masks ? mask : Array());
  };
}

Arrays operands() {
  return {wave({2, 37, 4, 8}, 0.1f), wave({2, 29, 2, 8}, 0.7f), wave({2, 29, 2, 6}, 1.9f)};
}
Array some_mask() { return wave({1, 1, 37, 29}, 0.4f) > -0.5f; }

TEST(AttentionDerivatives, ForwardAndReverse) {
  const Arrays x = operands(),
               t = {wave({2, 37, 4, 8}, 3.f), wave({2, 29, 2, 8}, 4.f), wave({2, 29, 2, 6}, 5.f)};
  const Array ct = wave({2, 37, 4, 6}, 6.f);
  for (const Form form : kForms) {
    const auto f = by_name(form, some_mask());
    const auto g = plainly(form, some_mask());
    for (const bool jitted : {false, true}) {
      const auto run = [&](const auto& h) {
        const auto all = [&h](Arrays a, Arrays b, Array c) {
          const auto [y, y_dot] = jvp(h, std::tuple{a}, std::tuple{b});
          const auto [z, back] = vjp(h, a);
          Arrays out = std::get<0>(back(c));
          out.insert(out.end(), {y, y_dot, z});
          // The derivative by one operand alone.
          out.push_back(grad([&](Array k) { return sum(c * h(Arrays{a[0], k, a[2]})); })(a[1]));
          return out;
        };
        return jitted ? jit(all)(x, t, ct) : all(x, t, ct);
      };
      expect_near(run(f), run(g), 3e-5f);
    }
  }
}

TEST(AttentionDerivatives, OfHalves) {
  const Array q = wave({2, 37, 4, 8}, 0.1f, bf16), k = wave({2, 29, 2, 8}, 0.7f, bf16),
              v = wave({2, 29, 2, 8}, 1.9f, bf16);
  const auto loss = [](auto f) {
    return [f](Array a, Array b, Array c) { return sum(square(astype(f(a, b, c), f32))); };
  };
  const auto f = [](Array a, Array b, Array c) { return attention(a, b, c, {.is_causal = true}); };
  const auto g = [](Array a, Array b, Array c) { return by_scores(a, b, c, true); };
  const auto [a, b, c] = grad<0, 1, 2>(loss(f))(q, k, v);
  const auto [d, e, h] = grad<0, 1, 2>(loss(g))(astype(q, f32), astype(k, f32), astype(v, f32));
  EXPECT_EQ(a.dtype(), bf16);
  EXPECT_EQ(b.dtype(), bf16);
  expect_near({a, b, c}, {d, e, h}, 0.15f);
}

// Derivatives without a kernel: that of the bias, and second derivatives.
TEST(AttentionDerivatives, OfTheBiasAndOfDerivatives) {
  const Arrays x = {wave({1, 5, 2, 4}, 0.1f), wave({1, 6, 1, 4}, 0.7f), wave({1, 6, 1, 3}, 1.9f)};
  const Array bias = wave({2, 1, 6}, 0.5f);
  const auto first = [&](auto f) {
    return [f](Arrays a) {
      const auto loss = [f](Arrays b) { return sum(sin(f(b))); };
      const Arrays g = grad(loss)(a);
      return sum(square(g[0])) + sum(g[1] * g[1]) + sum(g[2]);
    };
  };
  for (const Form form : {Form{false, false}, Form{true, false}}) {
    const auto f = by_name(form, {});
    const auto g = plainly(form, {});
    expect_near(grad(first(f))(x), grad(first(g))(x), 2e-4f);
    expect_near(jit(grad(first(f)))(x), grad(first(g))(x), 2e-4f);
    const Arrays t = {x[0] * 0.5f, x[1] * 0.25f, x[2] * 2.f};
    const auto along = [&t](auto h) {  // forward over reverse, and forward over forward
      return [h, &t](Arrays a) {
        const auto loss = [h](Arrays b) { return sum(sin(h(b))); };
        Arrays out =
            jvp([loss](Arrays b) { return grad(loss)(b); }, std::tuple{a}, std::tuple{t}).second;
        const auto one = [h, &t](Arrays b) { return jvp(h, std::tuple{b}, std::tuple{t}).second; };
        out.push_back(jvp(one, std::tuple{a}, std::tuple{t}).second);
        return out;
      };
    };
    expect_near(along(f)(x), along(g)(x), 2e-4f);
  }
  const auto biased = [&x](Array b) { return attention(x[0], x[1], x[2], {.bias = b}); };
  const auto biased_plainly = [&x](Array b) { return by_scores(x[0], x[1], x[2], false, b); };
  const auto loss = [](auto f) { return [f](Array b) { return sum(square(f(b))); }; };
  expect_near({grad(loss(biased))(bias), jvp(biased, std::tuple{bias}, std::tuple{bias}).second},
              {grad(loss(biased_plainly))(bias),
               jvp(biased_plainly, std::tuple{bias}, std::tuple{bias}).second},
              2e-4f);
}

// Many of each operand, of some of them, along other dims; before and after the derivative.
TEST(AttentionDerivatives, Vmap) {
  const Arrays x = operands();
  const auto many = [](const Array& a) { return stack({a, a * 0.5f, a * 1.5f}, 0); };
  const Array mask = stack({some_mask(), some_mask(), logical_not(some_mask())}, 1);
  const auto check = [&](InAxes in, Array q, Array k, Array v, Array m) {
    const auto grads = [](auto f) {
      return [f](Array q, Array k, Array v, Array m) {
        const auto loss = [f, m](Arrays a) { return sum(square(f(a, m))); };
        Arrays out = grad(loss)(Arrays{q, k, v});
        const Arrays at = {q, k, v};
        const auto g = [f, m](Arrays a) { return f(a, m); };
        out.push_back(jvp(g, std::tuple{at}, std::tuple{at}).second);
        return out;
      };
    };
    const auto f = [](Arrays a, Array m) { return attention(a[0], a[1], a[2], {.mask = m}); };
    const auto g = [](Arrays a, Array m) { return by_scores(a[0], a[1], a[2], false, {}, m); };
    expect_near(vmap(grads(f), in)(q, k, v, m), vmap(grads(g), in)(q, k, v, m), 2e-4f);
    const auto of_many = [&](auto h) {
      const auto one = [h](Array q, Array k, Array v, Array m) { return h(Arrays{q, k, v}, m); };
      return grad<0, 1, 2>([=](Array q, Array k, Array v) {
        return sum(square(vmap(one, in)(q, k, v, m)));
      })(q, k, v);
    };
    const auto [a, b, c] = of_many(f);
    const auto [d, e, i] = of_many(g);
    expect_near({a, b, c}, {d, e, i}, 4e-4f);
  };
  const Array q = many(x[0]), k = many(x[1]), v = many(x[2]);
  check({0, 0, 0, none}, q, k, v, some_mask());
  check({0, none, none, none}, q, x[1], x[2], some_mask());
  check({none, 0, none, none}, x[0], k, x[2], some_mask());
  check({none, none, none, 1}, x[0], x[1], x[2], mask);
  check({2, 1, none, 1}, transpose(q, {1, 2, 0, 3, 4}), swapaxes(k, 0, 1), x[2], mask);
}

TEST(AttentionDerivatives, OnEachDevicesHeadsAndOfSplitArrays) {
  const Mesh mesh = make_mesh({2, 4}, {"x", "y"});
  const P spec("x", none, "y");
  const Array q = wave({2, 37, 8, 4}, 0.1f), k = wave({2, 29, 4, 4}, 0.7f),
              v = wave({2, 29, 4, 4}, 1.9f);
  const auto loss = [](auto f) {
    return [f](Array a, Array b, Array c) { return sum(square(f(a, b, c))); };
  };
  const auto named = [](Array a, Array b, Array c) {
    return attention(a, b, c, {.is_causal = true});
  };
  const auto whole = [](Array a, Array b, Array c) { return by_scores(a, b, c, true); };
  const auto [d, e, f] = grad<0, 1, 2>(loss(whole))(q, k, v);
  const auto put = [&](const Array& x, P p) { return device_put(x, NamedSharding(mesh, p)); };
  for (const P& p : {spec, P("x")}) {
    const auto [a, b, c] = grad<0, 1, 2>(loss(shard_map(named, mesh, {p, p, p}, p)))(q, k, v);
    expect_near({a, b, c}, {d, e, f}, 1e-4f);
  }
  {  // Heads of q on their devices, and one k and v for all of them.
    const P heads(none, none, "y");
    const auto f1 = shard_map(named, mesh, {heads, P(), P()}, heads);
    const Array k1 = wave({2, 29, 1, 4}, 0.7f), v1 = wave({2, 29, 1, 4}, 1.9f);
    const auto [a, b, c] = grad<0, 1, 2>(loss(f1))(q, k1, v1);
    const auto [a1, b1, c1] = grad<0, 1, 2>(loss(whole))(q, k1, v1);
    expect_near({a, b, c}, {a1, b1, c1}, 1e-4f);
  }
  for (const P& p : {spec, P("x"), P(none, none, none, "y"), P()}) {
    const auto [a, b, c] = jit(grad<0, 1, 2>(loss(named)))(put(q, p), put(k, p), put(v, p));
    expect_near({a, b, c}, {d, e, f}, 1e-4f);
  }
}

TEST(AttentionDerivatives, AreOneEquationEachAndReadBackFromText) {
  const ShapedArray t({1, 4096, 2, 64}, f32);
  const auto loss = [](Array q, Array k, Array v) {
    return sum(attention(q, k, v, {.scale = 0.1, .is_causal = true}));
  };
  const ClosedJaxpr forward = make_jaxpr(loss)(t, t, t);
  const ClosedJaxpr backward = make_jaxpr(grad<0, 1, 2>(loss))(t, t, t);
  const ClosedJaxpr along = make_jaxpr([&](Array q, Array k, Array v) {
    return jvp(loss, std::tuple{q, k, v}, std::tuple{q, q, q}).second;
  })(t, t, t);
  for (const ClosedJaxpr* jaxpr : {&forward, &backward, &along})
    EXPECT_THAT(to_string(*jaxpr), Not(HasSubstr("4096,4096")));
  EXPECT_THAT(to_string(forward), HasSubstr("attention[causal_offset=0"));
  EXPECT_THAT(to_string(backward), HasSubstr("attention_grad["));
  EXPECT_THAT(to_string(along), HasSubstr("attention_tangent["));
  for (const ClosedJaxpr* jaxpr : {&forward, &backward, &along}) {
    const std::string text = to_string(*jaxpr);
    EXPECT_EQ(to_string(extend::parse_jaxpr(text)), text);
  }
}

TEST(AttentionDerivatives, MemoryGrowsWithTheSequence) {
  const auto bytes = [](std::int64_t rows) {
    const auto planned = jit([rows](Array q, Array k, Array v) {
      return grad<0, 1, 2>([rows](Array a, Array b, Array c) {
        return sum(square(attention(a, b, c, {.is_causal = true}))) / static_cast<float>(rows);
      })(q, k, v);
    });
    const Array x = wave({1, rows, 1, 16}, 0.1f);
    for (int call = 0; call < 3; ++call) planned(x, x, x);
    return test::planned_bytes(planned.plan_text());
  };
  // On GPUs, blocks of threads that share the keys of a row have scratch memory in addition, up to
  // a bound.
  const bool is_cpu = devices()[0].kind() == DeviceKind::cpu;
  const std::int64_t rows = is_cpu ? 2048 : 1024, one = bytes(rows / 4), four = bytes(rows);
  ASSERT_GT(one, 0);
  if (is_cpu) {
    EXPECT_LE(four, 4 * one + 4096);
  }
  EXPECT_LT(four, rows * rows);  // a byte a score
}

}  // namespace
}  // namespace shmap
