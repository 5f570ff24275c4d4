// shmap-test: devices
// attention by name: against JAX, against its equations where rows are taken in blocks, in bodies,
// under vmap, and that memory does not grow with both sequences. Its errors.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using testing::GoldenCase;

TEST(AttentionRows, AsJax) {
  int count = 0;
  for (const GoldenCase& c : testing::load_golden("attention")) {
    SCOPED_TRACE(c.name);
    ++count;
    try {
      std::vector<Array> x;
      for (const auto& in : c.inputs) x.push_back(testing::to_array(in));
      const bool biased = c.params.flag("bias");
      AttentionOptions options;
      options.is_causal = c.params.flag("causal");
      if (c.params.number("scale") != 0) options.scale = c.params.number("scale");
      if (c.params.flag("mask")) options.mask = x.back();
      const auto run = [&](Array q, Array k, Array v, Array ct, Array bias) {
        const auto f = [&](Array q2, Array k2, Array v2, Array b) {
          AttentionOptions o = options;
          if (biased) o.bias = b;
          return attention(q2, k2, v2, o);
        };
        auto [y, pullback] = vjp(f, q, k, v, bias);
        auto [q_bar, k_bar, v_bar, bias_bar] = pullback(ct);
        return std::vector<Array>{y, q_bar, k_bar, v_bar, bias_bar};
      };
      const Array bias = biased ? x[4] : Array(zeros({1}));
      for (const bool jitted : {false, true}) {
        const std::vector<Array> got =
            jitted ? jit(run)(x[0], x[1], x[2], x[3], bias) : run(x[0], x[1], x[2], x[3], bias);
        for (std::size_t o = 0; o < c.outputs.size(); ++o) {
          EXPECT_EQ(
              testing::golden_diff(c.outputs[o], got[o], static_cast<int>(c.params.integer("ulp")),
                                   c.params.number("atol")),
              "")
              << "output " << o << (jitted ? " under jit" : "");
        }
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << "threw: " << e.what();
    }
  }
  EXPECT_EQ(count, 18);
}

Array wave(const Shape& shape, float start) {
  const Array k = astype(iota(i32, shape.num_elements()), f32);
  return reshape(sin(k * 0.37f + start), shape);
}

// The same by operations, all scores at once: [batch, row, head, feature].
Array by_scores(Array q, Array k, Array v, Array bias, bool causal) {
  const std::int64_t share = q.shape()[2] / k.shape()[2];
  if (share != 1) {
    k = repeat(k, static_cast<int>(share), 2);
    v = repeat(v, static_cast<int>(share), 2);
  }
  Array s = einsum("bqhd,bkhd->bhqk", q, k) / std::sqrt(static_cast<float>(q.shape()[3]));
  if (bias.node()) s = s + bias;
  if (causal) {
    const std::int64_t rows = q.shape()[1], columns = k.shape()[1];
    s = where(reshape(iota(i32, rows), {rows, 1}) >= iota(i32, columns), s, -1e30f);
  }
  return einsum("bhqk,bkhd->bqhd", softmax(s), v);
}

float largest(const Array& a, const Array& b) { return max(abs(a - b)).item<float>(); }

// 600 rows are two blocks and a rest.
TEST(AttentionRows, BlocksAsAllScoresAtOnce) {
  const Array q = wave({1, 600, 4, 8}, 0.1f), k = wave({1, 40, 2, 8}, 0.7f),
              v = wave({1, 40, 2, 8}, 1.9f), ct = wave({1, 600, 4, 8}, 2.9f);
  for (const bool causal : {false, true}) {
    for (const Array& bias : {Array(), wave({1, 4, 600, 40}, 0.3f), wave({1, 40}, 0.4f)}) {
      for (const bool jitted : {false, true}) {
        const auto gradients = [&](bool blocks) {
          const auto f = [&, blocks](Array a, Array b, Array c, Array d) {
            const Array given = bias.node() ? d : Array();
            return sum(ct * (blocks ? attention(a, b, c, {.bias = given, .is_causal = causal})
                                    : by_scores(a, b, c, given, causal)));
          };
          const Array d = bias.node() ? bias : Array(zeros({1}));
          const auto g = value_and_grad(f, {0, 1, 2, 3});
          return jitted ? jit(g)(q, k, v, d) : g(q, k, v, d);
        };
        const auto [y, got] = gradients(true);
        const auto [z, want] = gradients(false);
        EXPECT_NEAR(y.item<float>(), z.item<float>(), 1e-3);
        for (std::size_t i = 0; i < 4; ++i) EXPECT_LT(largest(got[i], want[i]), 2e-4f) << i;
      }
    }
  }
}

// A scale that f32 rounds to 0: all scores are equal, as they are without such a kernel.
TEST(AttentionRows, OfAScaleBelowTheSmallestFloat) {
  for (const std::int64_t columns : {15, 17}) {
    const Array q = wave({1, 20, 2, 8}, 0.1f), k = wave({1, columns, 2, 8}, 0.7f),
                v = wave({1, columns, 2, 8}, 1.9f);
    const auto f = [](Array a, Array b, Array c) { return attention(a, b, c, {.scale = 1e-50}); };
    const Array want = broadcast_to(mean(v, 1, true), {1, 20, 2, 8});
    for (const Array& got : {f(q, k, v), jit(f)(q, k, v)})
      EXPECT_LT(largest(got, want), 1e-6f) << columns;
    const Array slope = grad([&](Array a) { return sum(f(a, k, v) * q); })(q);
    EXPECT_EQ(max(abs(slope)).item<float>(), 0.f) << columns;
  }
}

TEST(AttentionRows, JvpAndVmap) {
  const Array q = wave({1, 300, 2, 4}, 0.1f), k = wave({1, 20, 2, 4}, 0.7f),
              v = wave({1, 20, 2, 4}, 1.9f);
  const auto f = [](Array a, Array b, Array c) { return attention(a, b, c); };
  const auto g = [](Array a, Array b, Array c) { return by_scores(a, b, c, Array(), false); };
  const auto [y, y_dot] = jvp(f, std::tuple{q, k, v}, std::tuple{k[{0, 0, 0, 0}] * q, v, k});
  const auto [z, z_dot] = jvp(g, std::tuple{q, k, v}, std::tuple{k[{0, 0, 0, 0}] * q, v, k});
  EXPECT_LT(largest(y, z), 1e-5f);
  EXPECT_LT(largest(y_dot, z_dot), 1e-5f);
  const Array many = stack({q, q * 2.f}, 0);
  const Array got = vmap([&](Array a) { return attention(a, k, v); })(many);
  EXPECT_LT(largest(got[1], by_scores(q * 2.f, k, v, Array(), false)), 1e-5f);
}

TEST(AttentionRows, InBodiesOnEachDevicesHeads) {
  const Mesh mesh = make_mesh({2, 4}, {"x", "y"});
  const P spec("x", none, "y");
  const auto mapped = shard_map([](Array a, Array b, Array c) { return attention(a, b, c); }, mesh,
                                {spec, spec, spec}, spec);
  const Array q = wave({2, 300, 8, 4}, 0.1f), k = wave({2, 24, 4, 4}, 0.7f),
              v = wave({2, 24, 4, 4}, 1.9f);
  const auto loss = [&](auto f) {
    return [f](Array a, Array b, Array c) { return sum(square(f(a, b, c))); };
  };
  const auto whole = [](Array a, Array b, Array c) { return by_scores(a, b, c, Array(), false); };
  EXPECT_LT(largest(mapped(q, k, v), whole(q, k, v)), 1e-5f);
  const auto got = jit(grad<0, 1, 2>(loss(mapped)))(q, k, v);
  const auto want = grad<0, 1, 2>(loss(whole))(q, k, v);
  EXPECT_LT(largest(std::get<0>(got), std::get<0>(want)), 1e-4f);
  EXPECT_LT(largest(std::get<1>(got), std::get<1>(want)), 1e-4f);
  EXPECT_LT(largest(std::get<2>(got), std::get<2>(want)), 1e-4f);
}

// No value of the program, forward or backward, is as large as the scores.
TEST(AttentionRows, NoArrayOfTheScores) {
  const std::int64_t s = 4096;
  const ShapedArray t({1, s, 1, 64}, f32);
  const auto loss = [](Array q, Array k, Array v) { return sum(attention(q, k, v)); };
  const std::string text = to_string(make_jaxpr(grad<0, 1, 2>(loss))(t, t, t));
  EXPECT_EQ(text.find("4096,4096"), std::string::npos) << text;
  EXPECT_EQ(text.find("[16,1,1,4096"), std::string::npos) << "k or v for each block: " << text;
  EXPECT_NE(text.find("attention_grad["), std::string::npos) << text;
}

TEST(AttentionRows, Errors) {
  const Array x = zeros({2, 6, 4, 8});
  const auto call = [](Array q, Array k, Array v, AttentionOptions o = {}) {
    return [=] { attention(q, k, v, o); };
  };
  const char* const here = "attention_rows_test.cpp";
  using test::expect_error;
  expect_error<ValueError>(call(zeros({2, 6}), x, x), {"attention", "q of type f32[2,6]", here});
  expect_error<ValueError>(call(x, zeros({3, 6, 4, 8}), x), {"attention", "batch dims", here});
  expect_error<ValueError>(call(x, zeros({2, 6, 4, 7}), x), {"attention", "features", here});
  expect_error<ValueError>(call(x, x, zeros({2, 5, 4, 8})), {"attention", "rows and heads", here});
  expect_error<ValueError>(call(x, zeros({2, 6, 3, 8}), zeros({2, 6, 3, 8})),
                           {"attention", "the 4 heads of q must be a multiple of the 3", here});
  expect_error<ValueError>(call(x, x, x, {.bias = zeros({5, 6})}),
                           {"attention", "the bias of type f32[5,6]", here});
  expect_error<TypeError>(call(x, x, x, {.mask = zeros({6, 6})}),
                          {"attention", "the mask", "bools are wanted", here});
  const Array n = zeros({2, 6, 4, 8}, i32);
  expect_error<TypeError>(call(n, n, n), {"attention", "floats are wanted", here});
}

}  // namespace
}  // namespace shmap
