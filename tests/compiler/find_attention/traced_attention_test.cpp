// shmap-test: devices
// Attention that is written out and differentiated under jit: it becomes attention before its
// derivative is taken, where the derivative is the same, and stays as it is where it would not be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/planned_bytes.h"

namespace shmap {
namespace {

using testing::HasSubstr;
using testing::Not;
using Arrays = std::vector<Array>;

Array wave(const Shape& shape, float start) {
  const Array k = astype(iota(i32, shape.num_elements()), f32);
  return reshape(sin(k * 0.37f + start), shape);
}

Arrays operands(const Shape& shape) { return {wave(shape, 0), wave(shape, 1), wave(shape, 2)}; }

Array is_earlier(int rows, int columns) {
  return reshape(iota(i32, rows), {rows, 1}) >= iota(i32, columns);
}

// Attention as transformers write it; [batch, row, head, feature].
Array written_out(Array q, Array k, Array v) {
  Array s = einsum("bqhd,bkhd->bhqk", q, k) / std::sqrt(static_cast<float>(q.shape()[3]));
  s = where(is_earlier(static_cast<int>(q.shape()[1]), static_cast<int>(k.shape()[1])), s, -1e30f);
  return einsum("bhqk,bkhd->bqhd", softmax(s), v);
}

Array cost_of(const Array& y) { return sum(y * cos(y)); }

// The text of the program that jit gets.
std::string program_of(const std::function<Arrays(Arrays)>& f, const Arrays& x) {
  return to_string(make_jaxpr(jit(f))(x));
}

void expect_near(const Arrays& got, const Arrays& want, float tolerance = 2e-5f) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float largest = std::max(1.f, max(abs(want[i])).item<float>());
    EXPECT_LT(max(abs(got[i] - want[i])).item<float>(), tolerance * largest) << i;
  }
}

// The gradients of f under jit, which has attention, against eager ones, which keep the scores.
void expect_found(const std::function<Array(Arrays)>& f, const Arrays& x) {
  const std::function<Arrays(Arrays)> g = [f](Arrays y) { return grad(f)(y); };
  const std::string text = program_of(g, x);
  EXPECT_THAT(text, HasSubstr("attention_grad["));
  expect_near(jit(g)(x), g(x));
}
void expect_left(const std::function<Array(Arrays)>& f, const Arrays& x) {
  const std::function<Arrays(Arrays)> g = [f](Arrays y) { return grad(f)(y); };
  EXPECT_THAT(program_of(g, x), Not(HasSubstr("attention")));
  expect_near(jit(g)(x), g(x));
}

TEST(TracedAttention, IsDifferentiatedAsAttention) {
  expect_found([](Arrays x) { return cost_of(written_out(x[0], x[1], x[2])); },
               operands({2, 24, 2, 8}));
}

TEST(TracedAttention, KeepsNoArrayOfTheScores) {
  constexpr std::int64_t kRows = 1024;
  const auto planned = jit([](Arrays x) {
    return grad([](Arrays y) { return cost_of(written_out(y[0], y[1], y[2])); })(x);
  });
  const Arrays x = operands({1, kRows, 1, 16});
  for (int call = 0; call < 3; ++call) planned(x);
  const std::int64_t bytes = test::planned_bytes(planned.plan_text());
  ASSERT_GT(bytes, 0);
  EXPECT_LT(bytes, kRows * kRows);  // a byte a score
}

TEST(TracedAttention, InsideOfAFunctionOfItsOwn) {
  const auto inner = jit([](Array q, Array k, Array v) { return written_out(q, k, v); });
  expect_found([inner](Arrays x) { return cost_of(inner(x[0], x[1], x[2])); },
               operands({1, 16, 2, 8}));
}

TEST(TracedAttention, ComputedAgainInTheBackwardPass) {
  const auto again = checkpoint([](Array q, Array k, Array v) { return written_out(q, k, v); });
  expect_found([again](Arrays x) { return cost_of(again(x[0], x[1], x[2])); },
               operands({1, 16, 2, 8}));
}

TEST(TracedAttention, InTheLayersOfALoop) {
  const auto layers = [](Arrays x) {
    const auto layer = [&](Array y, Array w) {
      const Array q = y * w;
      return std::pair{y + written_out(q, y, y), Array(0.f)};
    };
    return cost_of(scan(layer, x[0], wave({3, 1, 16, 2, 8}, 4)).first);
  };
  expect_found(layers, operands({1, 16, 2, 8}));
}

TEST(TracedAttention, InAMappedBody) {
  const Mesh mesh = make_mesh({2, 4}, {"i", "j"});
  const P spec("i", none, "j");
  const auto mapped = shard_map(
      [](Array q, Array k, Array v, Array keep) {
        Array s = einsum("bqhd,bkhd->bhqk", q, k) * 0.5f;
        s = where(keep, s, -1e30f);
        return einsum("bhqk,bkhd->bqhd", softmax(s), v);
      },
      mesh, {spec, spec, spec, P()}, spec);
  const Array keep = is_earlier(12, 12);
  expect_found([&](Arrays x) { return cost_of(mapped(x[0], x[1], x[2], keep)); },
               operands({2, 12, 4, 8}));
}

TEST(TracedAttention, ForwardMode) {
  const auto f = [](Arrays x) { return written_out(x[0], x[1], x[2]); };
  const std::function<Arrays(Arrays)> along = [&](Arrays x) {
    return Arrays{jvp(f, std::tuple(x), std::tuple(operands({1, 16, 2, 8}))).second};
  };
  const Arrays x = operands({1, 16, 2, 8});
  EXPECT_THAT(program_of(along, x), HasSubstr("attention_tangent["));
  expect_near(jit(along)(x), along(x));
}

TEST(TracedAttention, SecondDerivatives) {
  const auto f = [](Arrays x) { return cost_of(written_out(x[0], x[1], x[2])); };
  const std::function<Arrays(Arrays)> second = [&](Arrays x) {
    return grad([&](Arrays y) {
      Array all = Array(0.f);
      for (const Array& g : grad(f)(y)) all = all + sum(g * g);
      return all;
    })(x);
  };
  const Arrays x = operands({1, 12, 2, 8});
  expect_near(jit(second)(x), second(x), 2e-4f);
}

TEST(TracedAttention, OnlyTheValuesAreDifferentiated) {
  const Arrays x = operands({1, 16, 2, 8});
  expect_found([&](Arrays v) { return cost_of(written_out(x[0], x[1], v[0])); }, {x[2]});
}

// ---- left as it is

TEST(TracedAttention, AStoppedGradientStaysStopped) {
  const Arrays x = operands({1, 16, 2, 8});
  const auto with = [](const std::function<Array(Array)>& of_q,
                       const std::function<Array(Array)>& of_s,
                       const std::function<Array(Array)>& of_w) {
    return [=](Arrays y) {
      const Array s = einsum("bqhd,bkhd->bhqk", of_q(y[0]), y[1]) * 0.25f;
      return cost_of(einsum("bhqk,bkhd->bqhd", of_w(softmax(of_s(s))), y[2]));
    };
  };
  const auto same = [](Array a) { return a; };
  const auto stop = [](Array a) { return stop_gradient(a); };
  expect_found(with(same, same, same), x);
  expect_left(with(same, stop, same), x);
  expect_left(with(same, same, stop), x);
  // q without its gradient is an operand without one.
  expect_found(with(stop, same, same), x);
  const auto half = [](Array a) { return where(a > 0.f, a, stop_gradient(a)); };
  expect_left(with(same, half, same), x);
}

TEST(TracedAttention, ABiasWithAGradient) {
  Arrays x = operands({1, 16, 2, 8});
  x.push_back(wave({2, 16, 16}, 3));
  expect_left(
      [](Arrays y) {
        const Array s = einsum("bqhd,bkhd->bhqk", y[0], y[1]) * 0.25f + y[3];
        return cost_of(einsum("bhqk,bkhd->bqhd", softmax(s), y[2]));
      },
      x);
}

TEST(TracedAttention, WeightsThatAreUsedElsewhereHaveTheirGradientsToo) {
  const auto f = [](Arrays y) {
    const Array w = softmax(einsum("bqhd,bkhd->bhqk", y[0], y[1]) * 0.25f);
    return cost_of(einsum("bhqk,bkhd->bqhd", w, y[2])) + sum(w * log(w));
  };
  expect_found(f, operands({1, 16, 2, 8}));
}

TEST(TracedAttention, ARuleOfTheUserForTheSoftmaxIsKept) {
  const auto rule = custom_vjp(
      [](Array s) { return softmax(s); },
      [](Array s) {
        return std::pair{softmax(s), softmax(s)};
      },
      [](Array w, Array g) { return std::tuple(2.f * w * (g - sum(w * g, {-1}, true))); });
  expect_left(
      [rule](Arrays y) {
        const Array s = einsum("bqhd,bkhd->bhqk", y[0], y[1]) * 0.25f;
        return cost_of(einsum("bhqk,bkhd->bqhd", rule(s), y[2]));
      },
      operands({1, 16, 2, 8}));
}

// One head; the score of columns beyond row + offset is `masked`.
std::function<Array(Arrays)> with_masked(float masked, int offset) {
  return [=](Arrays y) {
    Array s = matmul(y[0], transpose(y[1])) * 0.35f;
    s = where(reshape(iota(i32, 16), {16, 1}) + offset >= iota(i32, 16), s, masked);
    return matmul(softmax(s), y[2]);
  };
}

TEST(TracedAttention, MaskedScoresThatCountHaveNoGradient) {
  const Arrays x = operands({16, 8});
  for (const int offset : {0, -2}) {
    for (const float masked : {-5.f, -1.f, 0.f}) {
      SCOPED_TRACE(std::to_string(masked) + ", offset " + std::to_string(offset));
      const auto f = with_masked(masked, offset);
      expect_left([f](Arrays y) { return cost_of(f(y)); }, x);
      const auto tangents = [f, x](Arrays y) {
        return jvp(f, std::tuple(y), std::tuple(x)).second;
      };
      EXPECT_LT(max(abs(jit(tangents)(x) - tangents(x))).item<float>(), 2e-5f);
    }
    const auto far = with_masked(-1e4f, offset);
    expect_found([far](Arrays y) { return cost_of(far(y)); }, x);
  }
}

// Scores that are no larger than the masked value, whose rows are thus not masked whole.
TEST(TracedAttention, ScoresBelowTheMaskedValueHaveTheirGradients) {
  Arrays x = operands({16, 8});
  const Array kept = astype(iota(i32, 16) % 3, bool_);
  for (const float lowered : {-9.995e3f, -1e4f, -1.0002e4f}) {
    SCOPED_TRACE(std::to_string(lowered));
    const auto f = [=](Arrays y) {
      // The first feature lowers all scores by so much.
      const Array low = full({16, 1}, lowered), one = ones({16, 1});
      Array s = matmul(concatenate({y[0], one}, 1), transpose(concatenate({y[1], low}, 1)));
      s = where(logical_and(is_earlier(16, 16), kept), s, -1e4f);
      return matmul(softmax(s), y[2]);
    };
    const auto g = [f](Arrays y) { return grad([f](Arrays z) { return cost_of(f(z)); })(y); };
    const Arrays eager = g(x);
    EXPECT_GT(max(abs(eager[1])).item<float>(), 1e-3f);
    EXPECT_THAT(program_of(g, x), HasSubstr("attention_grad["));
    expect_near(jit(g)(x), eager, 5e-3f);  // the eager scores are rounded to 1e-3
    const auto tangents = [f, x](Arrays y) { return jvp(f, std::tuple(y), std::tuple(x)).second; };
    EXPECT_LT(max(abs(jit(tangents)(x) - tangents(x))).item<float>(), 5e-3f);
  }
}

TEST(TracedAttention, RowsThatAreMaskedWholeWithInfinityHaveNoGradient) {
  const auto f = with_masked(-std::numeric_limits<float>::infinity(), -2);
  const auto of_the_others = [f](Arrays y) {
    const Array out = f(y);
    return sum(where(isnan(out), 0.f, sin(out)));
  };
  const auto g = [&](Arrays y) { return grad(of_the_others)(y); };
  const Arrays x = operands({16, 8}), eager = g(x), replayed = jit(g)(x);
  EXPECT_THAT(program_of(g, x), HasSubstr("attention_grad["));
  for (const int i : {0, 1}) {  // v's gradient is NaN: 0 times the weights of these rows
    EXPECT_TRUE(all(isfinite(replayed[i])).item<bool>()) << i;
    EXPECT_LT(max(abs(replayed[i] - eager[i])).item<float>(), 2e-5f) << i;
  }
}

}  // namespace
}  // namespace shmap
