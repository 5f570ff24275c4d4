// shmap-test: devices
// Programs under jit in which values are computed again, or later, give the bits of the same
// programs in which values are kept. (An eager product may be divided differently from a planned
// one, or use another algorithm of a library, and then differ in the last bit.)
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
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

// The plan that jit made of a function, and what its first call (traced), second (captured) and two
// more (replayed) gave.
struct Calls {
  std::string plan;
  std::vector<std::vector<Seen>> results;
};
template <class F, class Call>
Calls calls_of_jit(const char* rematerialize, const F& f, const Call& call) {
  setenv("SHMAP_REMATERIALIZE", rematerialize, 1);
  // The lambda captures a value, since all functions of one type without state share their programs
  // under jit.
  const auto jitted = jit([f, rematerialize](const Array& a, const Array& b, const Array& c) {
    (void)rematerialize;
    return f(a, b, c);
  });
  Calls calls;
  for (int k = 0; k < 4; ++k) calls.results.push_back(see(leaves_of(call(jitted))));
  calls.plan = jitted.plan_text();
  unsetenv("SHMAP_REMATERIALIZE");
  return calls;
}

// call(jitted): one call of it. shows: whether the plan must show on CPUs that something was
// computed again, or later; by the rates of a GPU, such small values are not worth another launch.
template <class F, class Call>
void expect_same_as_kept(const F& f, const Call& call, bool shows = true) {
  const Calls kept = calls_of_jit("0", f, call), again = calls_of_jit("1", f, call);
  if (shows && devices()[0].kind() == DeviceKind::cpu) {
    EXPECT_NE(kept.plan, again.plan) << "nothing was computed again, or later";
  }
  for (std::size_t k = 0; k < kept.results.size(); ++k)
    expect_same(kept.results[k], again.results[k], "call " + std::to_string(k));
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
  const Operands o = operands();
  expect_same_as_kept(mapped(), [&](const auto& f) { return f(o.x, o.w, o.v); });
}

TEST(RematerializedValues, OfDerivatives) {
  const Operands o = operands();
  const auto loss = [f = mapped()](Array w, Array x, Array v) { return sum(square(f(x, w, v))); };
  // If each device has its own memory, rematerialising is not worth it.
  expect_same_as_kept(
      value_and_grad(loss), [&](const auto& f) { return f(o.w, o.x, o.v); },
      /*shows=*/false);
}

TEST(RematerializedValues, OfBatches) {
  const Array x = numbers({8, kRows, kRows}, 3), w = numbers({kRows, kRows}, 5),
              v = numbers({kRows, kWide}, 7);
  expect_same_as_kept(vmap(layer, {0, none, none}), [&](const auto& f) { return f(x, w, v); });
}

TEST(RematerializedValues, InLoopsAndBranches) {
  const Array x = numbers({8 * kRows, kRows}, 3), w = numbers({kRows, kRows}, 5),
              v = numbers({kRows, kWide}, 7);
  const auto steps = [](Array x, Array w, Array v) {
    return fori_loop(
        0, 3, [&](Array, Array c) { return tanh(layer(c, w, v) * 1e-3f); }, x);
  };
  expect_same_as_kept(steps, [&](const auto& f) { return f(x, w, v); });
  const auto branch = [](Array x, Array w, Array v) {
    const Array n = tanh(matmul(x, w)) * 0.5f;
    const Array m = cond(
        sum(x) > 0.f, [&](Array c) { return layer(c, w, v); },
        [&](Array c) { return layer(c + 1.f, w, v); }, n);
    return m + n;
  };
  expect_same_as_kept(branch, [&](const auto& f) { return f(x, w, v); });
}

// Operands that are given up, as the results' memory may then be theirs.
TEST(RematerializedValues, OfOperandsThatAreGivenUp) {
  expect_same_as_kept(mapped(), [](const auto& f) {
    Operands o = operands();
    return f(std::move(o.x), std::move(o.w), std::move(o.v));
  });
}

}  // namespace
}  // namespace shmap::test
