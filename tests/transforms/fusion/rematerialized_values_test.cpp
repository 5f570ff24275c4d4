// shmap-test: devices
// Programs under jit in which values are computed again, or later: they are those of the operations
// one by one, bit for bit.
#include <gtest/gtest.h>

#include <string>

#include "shmap/shmap.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

constexpr std::int64_t kRows = 64, kWide = 16 * kRows;

Array numbers(const Shape& shape, int step) {
  return reshape(astype(remainder(arange(shape.num_elements()) * step, 17), f32), shape) / 16.f -
         0.5f;
}

// Reads the scaled product early and late, with much memory in use between.
Array layer(const Array& x, const Array& w, const Array& v) {
  const Array a = matmul(x, w);
  const Array n = a * rsqrt(mean(square(a), 1, true) + 1.f);
  const Array m = matmul(tanh(matmul(matmul(n, w), v)), transpose(v));
  return matmul(n, matmul(transpose(m), m)) + a * n;
}

Mesh ring() { return make_mesh({static_cast<int>(devices().size())}, "i"); }
auto mapped() {
  return shard_map([](Array x, Array w, Array v) { return layer(x, w, v); }, ring(),
                   {P("i"), P(), P()}, P("i"));
}
struct Operands {
  Array x, w, v;
};
Operands operands() {
  const auto n = static_cast<std::int64_t>(devices().size());
  const auto put = [&](const Array& a, const P& spec) {
    return device_put(a, NamedSharding(ring(), spec));
  };
  return {put(numbers({n * kRows, kRows}, 3), P("i")), put(numbers({kRows, kRows}, 5), P()),
          put(numbers({kRows, kWide}, 7), P())};
}

TEST(RematerializedValues, OfAMappedFunction) {
  const auto [x, w, v] = operands();
  expect_same_under_jit(mapped(), Communication::same, x, w, v);
}

TEST(RematerializedValues, OfDerivatives) {
  const auto [x, w, v] = operands();
  const auto loss = [f = mapped()](Array w, Array x, Array v) { return sum(square(f(x, w, v))); };
  expect_same_under_jit(value_and_grad(loss), Communication::no_more, w, x, v);
}

TEST(RematerializedValues, OfBatches) {
  const Array x = numbers({8, kRows, kRows}, 3), w = numbers({kRows, kRows}, 5),
              v = numbers({kRows, kWide}, 7);
  expect_same_under_jit(vmap(layer, {0, none, none}), Communication::same, x, w, v);
}

TEST(RematerializedValues, InLoopsAndBranches) {
  const Array x = numbers({8 * kRows, kRows}, 3), w = numbers({kRows, kRows}, 5),
              v = numbers({kRows, kWide}, 7);
  const auto steps = [](Array x, Array w, Array v) {
    return fori_loop(
        0, 3, [&](Array, Array c) { return tanh(layer(c, w, v) * 1e-3f); }, x);
  };
  expect_same_under_jit(steps, Communication::same, x, w, v);
  const auto branch = [](Array x, Array w, Array v) {
    const Array n = tanh(matmul(x, w)) * 0.5f;
    const Array m = cond(
        sum(x) > 0.f, [&](Array c) { return layer(c, w, v); },
        [&](Array c) { return layer(c + 1.f, w, v); }, n);
    return m + n;
  };
  expect_same_under_jit(branch, Communication::same, x, w, v);
}

// A result of which nothing else is left than its sum, and operands that are given up.
TEST(RematerializedValues, OfOperandsThatAreGivenUp) {
  const auto f = jit(mapped());
  for (int call = 0; call < 4; ++call) {
    Operands a = operands(), b = operands();
    const auto want = see({mapped()(a.x, a.w, a.v)});
    expect_same(want, see({f(std::move(b.x), std::move(b.w), std::move(b.v))}),
                "call " + std::to_string(call));
  }
}

}  // namespace
}  // namespace shmap::test
