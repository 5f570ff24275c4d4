// checkpoint: what it saves, what is computed again, and that no pass undoes it.
#include <gtest/gtest.h>

#include <cmath>

#include "core/transforms/autodiff/linearize.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using Floats = std::vector<float>;

Array vec(std::initializer_list<float> v) {
  return array<float>(Floats(v), {static_cast<std::int64_t>(v.size())});
}
Floats values(const Array& x) { return x.to_vector<float>(); }

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

Array twice_sin(Array x) { return sin(sin(x)); }
float derivative(float x) { return std::cos(std::sin(x)) * std::cos(x); }

// The number of arrays that the linear part of f at x holds.
template <class F>
std::size_t residuals(F f, const Array& x) {
  detail::FlatCall<F, Array> call(f, x);
  detail::FlatTree result;
  return linearize_of(detail::BodyRef(call), {x}, {true}, result, {}).linear.residuals.size();
}

TEST(Checkpoint, GivesTheSameDerivatives) {
  const Array x = vec({0.5f, 1, -2});
  const auto f = [](Array a) { return sum(checkpoint(twice_sin)(a)); };
  const auto plain = [](Array a) { return sum(twice_sin(a)); };
  const Floats wanted = values(grad(plain)(x));
  EXPECT_NEAR(wanted[0], derivative(0.5f), 1e-6f);
  EXPECT_EQ(values(grad(f)(x)), wanted);
  EXPECT_EQ(values(grad(jit(f))(x)), wanted);
  const auto fast = jit(grad(f));
  for (int k = 0; k < 4; ++k) EXPECT_EQ(values(fast(x)), wanted);
  EXPECT_EQ(jvp(f, std::tuple{x}, std::tuple{vec({0, 1, 0})}).second.item<float>(), wanted[1]);
  EXPECT_EQ(values(jacfwd(f)(x)), wanted);
  EXPECT_EQ(values(vmap(grad(checkpoint(twice_sin)))(x)), wanted);
  EXPECT_EQ(values(grad([&](Array a) { return sum(vmap(checkpoint(twice_sin))(a)); })(x)), wanted);
  const Floats second = values(hessian(plain)(x)), got = values(hessian(f)(x));
  ASSERT_EQ(got.size(), second.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], second[i], 1e-5f);
}

TEST(Checkpoint, SavesItsInputAlone) {
  const Array x = vec({0.5f, 1, -2});
  EXPECT_EQ(residuals(twice_sin, x), 2u);
  EXPECT_EQ(residuals(checkpoint(twice_sin), x), 1u);
  EXPECT_EQ(residuals([](Array a) { return checkpoint(checkpoint(twice_sin))(a); }, x), 1u);
}

TEST(Checkpoint, ClosesOverWhatIsDifferentiated) {
  const auto f = [](Array a, Array b) { return a * b; };
  const auto g = [&](Array w) {
    return grad([&](Array b) { return checkpoint([&](Array c) { return f(w, c); })(b); })(w);
  };
  EXPECT_EQ(values(g(2.f)), (Floats{2}));
  EXPECT_EQ(
      values(grad([&](Array w) { return checkpoint([&](Array c) { return f(w, c); })(3.f); })(2.f)),
      (Floats{3}));
}

TEST(Checkpoint, IsComputedAgainWhateverIsSimplified) {
  const auto f = [](Array a) { return sum(checkpoint(twice_sin)(a)); };
  const auto plain = [](Array a) { return sum(twice_sin(a)); };
  const ClosedJaxpr jaxpr = make_jaxpr(value_and_grad(f))(ShapedArray({3}, f32));
  const std::string text = to_string(jaxpr);
  EXPECT_EQ(count_of(text, "checkpoint["), 2u) << text;
  EXPECT_NE(text.find("differentiated=True"), std::string::npos) << text;
  // The forward pass has two sines; the backward pass computes the inner one again.
  const Array x = vec({0.5f, 1, -2});
  const auto run = [&](auto loss) {
    auto g = jit(value_and_grad(loss));
    g(x);
    return cost_analysis(make_jaxpr(value_and_grad(loss))(x)).flops;
  };
  EXPECT_GT(run(f), run(plain));
  const auto planned = jit(value_and_grad(f));
  planned(x);
  EXPECT_NE(planned.plan_text().find("optimization_barrier"), std::string::npos)
      << planned.plan_text();
}

// The index is an operand, and a number once the loop is unrolled.
TEST(Checkpoint, ClosesOverTheIndexOfAnUnrolledLoop) {
  const auto gradient = [](auto inner) {
    return [=](Array x) {
      return fori_loop(
          1, 5,
          [=](Array i, Array c) {
            return grad([=](Array v) {
              return sum(checkpoint([=](Array u) { return inner(u, i); })(v));
            })(c);
          },
          x);
    };
  };
  const Array x = arange(8) * 0.1f;
  const auto same = [&](const char* what, auto f) {
    const std::vector<float> want = f(x).template to_vector<float>();
    const auto g = jit(f);
    for (int call = 0; call < 3; ++call) {
      const std::vector<float> got = g(x).template to_vector<float>();
      for (std::size_t k = 0; k < want.size(); ++k)
        EXPECT_NEAR(got[k], want[k], 1e-5 * (1 + std::abs(want[k]))) << what;
    }
  };
  same("take", gradient([](Array u, Array i) { return sin(take(u, i)) * u; }));
  same("dynamic_slice", gradient([](Array u, Array i) { return sin(dynamic_slice(u, {i}, {2})); }));
  same("product", gradient([](Array u, Array i) { return sin(u * i); }));
}

// The product of two gathered copies of one block: without checkpoint the gathered ones are saved.
TEST(Checkpoint, CollectivesAreDoneAgain) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto body = [](Array x) {
    return all_gather(x, "i", {.tiled = true}) * all_gather(x, "i", {.tiled = true});
  };
  std::size_t saved = 0, plain = 0;
  shard_map(
      [&](Array x) {
        plain = residuals(body, x);
        saved = residuals(checkpoint(body), x);
        return x;
      },
      mesh, P("i"), P("i"))(arange(8));
  EXPECT_EQ(saved, 1u);
  EXPECT_GE(plain, 1u);
  const auto loss = [&](auto f) {
    return [=](Array x) { return sum(shard_map(f, mesh, P("i"), P("i"))(x)); };
  };
  const Array x = arange(8);
  const Floats wanted = values(grad(loss(body))(x));
  EXPECT_EQ(wanted[3], 4 * 2 * 3.f);
  EXPECT_EQ(values(grad(loss(checkpoint(body)))(x)), wanted);
  const auto fast = jit(grad(loss(checkpoint(body))));
  for (int k = 0; k < 4; ++k) EXPECT_EQ(values(fast(x)), wanted);
}

TEST(Checkpoint, RunsAsItIsWhereNothingIsTraced) {
  int calls = 0;
  const auto f = checkpoint([&](Array x) {
    ++calls;
    return x > 0 ? x : -x;
  });
  EXPECT_EQ(values(f(-2.f)), (Floats{2}));
  EXPECT_EQ(calls, 1);
  expect_error<TypeError>([&] { grad(f)(-2.f); }, {"where"});
}

}  // namespace
}  // namespace shmap
