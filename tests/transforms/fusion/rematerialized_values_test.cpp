// shmap-test: devices
// Programs under jit in which values are computed again, or later: they are those of the same
// programs in which values are kept, bit for bit. (An eager product may be divided otherwise than a
// planned one, or take another algorithm of a library, and then differ in the last bit.)
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

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

// What the first call (traced), the second (captured) and two more (replayed) of jit(f) give.
template <class F, class... A>
std::vector<std::vector<Seen>> calls_of_jit(const char* rematerialize, const F& f,
                                            const A&... args) {
  setenv("SHMAP_REMATERIALIZE", rematerialize, 1);
  const auto jitted = jit(f);
  std::vector<std::vector<Seen>> calls;
  for (int call = 0; call < 4; ++call) calls.push_back(see(leaves_of(jitted(args...))));
  unsetenv("SHMAP_REMATERIALIZE");
  return calls;
}

template <class F, class... A>
void expect_same_as_kept(const F& f, const A&... args) {
  const auto kept = calls_of_jit("0", f, args...), again = calls_of_jit("1", f, args...);
  for (std::size_t call = 0; call < kept.size(); ++call)
    expect_same(kept[call], again[call], "call " + std::to_string(call));
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
  expect_same_as_kept(mapped(), x, w, v);
}

TEST(RematerializedValues, OfDerivatives) {
  const auto [x, w, v] = operands();
  const auto loss = [f = mapped()](Array w, Array x, Array v) { return sum(square(f(x, w, v))); };
  expect_same_as_kept(value_and_grad(loss), w, x, v);
}

TEST(RematerializedValues, OfBatches) {
  const Array x = numbers({8, kRows, kRows}, 3), w = numbers({kRows, kRows}, 5),
              v = numbers({kRows, kWide}, 7);
  expect_same_as_kept(vmap(layer, {0, none, none}), x, w, v);
}

TEST(RematerializedValues, InLoopsAndBranches) {
  const Array x = numbers({8 * kRows, kRows}, 3), w = numbers({kRows, kRows}, 5),
              v = numbers({kRows, kWide}, 7);
  const auto steps = [](Array x, Array w, Array v) {
    return fori_loop(
        0, 3, [&](Array, Array c) { return tanh(layer(c, w, v) * 1e-3f); }, x);
  };
  expect_same_as_kept(steps, x, w, v);
  const auto branch = [](Array x, Array w, Array v) {
    const Array n = tanh(matmul(x, w)) * 0.5f;
    const Array m = cond(
        sum(x) > 0.f, [&](Array c) { return layer(c, w, v); },
        [&](Array c) { return layer(c + 1.f, w, v); }, n);
    return m + n;
  };
  expect_same_as_kept(branch, x, w, v);
}

// Operands that are given up, as the results' memory may then be theirs.
TEST(RematerializedValues, OfOperandsThatAreGivenUp) {
  const auto results = [](const char* rematerialize) {
    setenv("SHMAP_REMATERIALIZE", rematerialize, 1);
    const auto f = jit(mapped());
    std::vector<std::vector<Seen>> calls;
    for (int call = 0; call < 4; ++call) {
      Operands o = operands();
      calls.push_back(see({f(std::move(o.x), std::move(o.w), std::move(o.v))}));
    }
    unsetenv("SHMAP_REMATERIALIZE");
    return calls;
  };
  const auto kept = results("0"), again = results("1");
  for (std::size_t call = 0; call < kept.size(); ++call)
    expect_same(kept[call], again[call], "call " + std::to_string(call));
}

}  // namespace
}  // namespace shmap::test
