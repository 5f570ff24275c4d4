// shmap-test: devices
// Gradients of losses and layers against JAX's: eagerly, under jit, through checkpoint and of
// sharded arrays.
#include <gtest/gtest.h>

#include <map>

#include "shmap/shmap.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using Arrays = std::vector<Array>;
using Program = std::function<Arrays(Arrays)>;

Array mlp_loss(Arrays p) {
  const Array hidden = tanh(matmul(p[4], p[0]) + p[1]);
  return mean(square(matmul(hidden, p[2]) + p[3] - p[5]));
}

Array layer_norm_loss(Arrays p) { return sum(sin(layer_norm(p[0], p[1], p[2], 1e-5))); }

Array cross_entropy(Arrays p, Array labels) {
  const Array logits = log_softmax(matmul(p[1], p[0]), -1);
  return -mean(sum(logits * one_hot(labels, 5, logits.dtype()), -1));
}

Array rosenbrock(Array x) {
  const std::int64_t n = x.size();
  const Array low = x[range(0, n - 1)], high = x[range(1, n)];
  return sum(100 * square(high - square(low)) + square(1 - low));
}

// The value, then the first `count` gradients.
template <class F, class... A>
Arrays value_and_gradients(F f, std::size_t count, Arrays p, const A&... rest) {
  auto [value, gradients] = value_and_grad(f)(p, rest...);
  Arrays out{value};
  out.insert(out.end(), gradients.begin(), gradients.begin() + static_cast<std::ptrdiff_t>(count));
  return out;
}

// `around`: what the functions go through before they are differentiated.
template <class Around>
std::map<std::string, Program> programs(Around around) {
  std::map<std::string, Program> all;
  all["mlp"] = [=](Arrays x) { return value_and_gradients(around(mlp_loss), 4, x); };
  all["layer_norm"] = [=](Arrays x) { return value_and_gradients(around(layer_norm_loss), 3, x); };
  all["cross_entropy"] = [=](Arrays x) {
    return value_and_gradients(around(cross_entropy), 2, Arrays{x[0], x[1]}, x[2]);
  };
  all["hessian"] = [=](Arrays x) { return Arrays{hessian(around(rosenbrock))(x[0])}; };
  all["jacobian"] = [=](Arrays x) {
    return Arrays{jacrev(around([](Array a) { return tanh(outer(a, a)); }))(x[0])};
  };
  all["hessian_vector"] = [=](Arrays x) {
    return Arrays{jvp(grad(around(rosenbrock)), std::tuple{x[0]}, std::tuple{x[1]}).second};
  };
  return all;
}

const Program& of(const std::map<std::string, Program>& all, const testing::GoldenCase& c) {
  return all.at(c.name.substr(0, c.name.find('/')));
}

constexpr auto as_it_is = [](auto f) { return f; };

TEST(GoldenLosses, Eager) {
  const auto all = programs(as_it_is);
  testing::expect_golden(
      "losses", [&](const testing::GoldenCase& c, const Arrays& in) { return of(all, c)(in); });
}

TEST(GoldenLosses, UnderJit) {
  const auto all = programs(as_it_is);
  testing::expect_golden("losses", [&](const testing::GoldenCase& c, const Arrays& in) {
    const auto f = jit(of(all, c));
    f(in);
    f(in);
    return f(in);
  });
}

TEST(GoldenLosses, OfJit) {
  const auto all = programs([](auto f) { return jit(f); });
  testing::expect_golden(
      "losses", [&](const testing::GoldenCase& c, const Arrays& in) { return of(all, c)(in); });
}

TEST(GoldenLosses, OfCheckpoint) {
  const auto all = programs([](auto f) { return checkpoint(f); });
  testing::expect_golden(
      "losses", [&](const testing::GoldenCase& c, const Arrays& in) { return of(all, c)(in); });
  testing::expect_golden("losses", [&](const testing::GoldenCase& c, const Arrays& in) {
    const auto f = jit(of(all, c));
    f(in);
    f(in);
    return f(in);
  });
}

TEST(GoldenLosses, OfShardedArrays) {
  const auto all = programs(as_it_is);
  testing::expect_golden(
      "losses", [&](const testing::GoldenCase& c, const Arrays& in) { return of(all, c)(in); },
      testing::split_over_mesh, test::Communication::no_more);
}

}  // namespace
}  // namespace shmap
