// shmap-test: devices
// debug::print in programs of a custom_jvp rule (under jit, in loops, branches and checkpoint):
// what is printed of primals alone is printed with them, once; what is printed of tangents is
// printed where the linear map runs, and not in reverse. JAX 0.10.2 prints the same lines for the
// same functions (some in another order: its prints are not ordered).
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <functional>
#include <string>

#include "core/array/mesh_impl.h"
#include "core/device/backend.h"

namespace shmap {
namespace {

using A1 = std::tuple<Array>;

// The text that `run` prints, after all of its queued work is done.
template <class F>
std::string printed(F run) {
  testing::internal::CaptureStdout();
  run();
  detail::MeshImpl::default_device()->backend().synchronize();
  return testing::internal::GetCapturedStdout();
}

struct Texts {
  std::string primal, tangent;    // of one example
  std::string primals, tangents;  // of three examples under vmap
  // What the linear map prints of primals, and what reverse mode prints of them after the value.
  std::string again, agains;
};

template <class F>
void expect_prints(const char* what, F f, const Texts& texts) {
  SCOPED_TRACE(what);
  const Array x = arange(3.f), one = x[1];
  const auto loss = [=](Array v) { return sum(vmap(f)(v)); };
  EXPECT_EQ(printed([&] { grad(f)(one); }), texts.primal + texts.again);
  EXPECT_EQ(printed([&] { vmap(grad(f))(x); }), texts.primals + texts.agains);
  EXPECT_EQ(printed([&] { grad(loss)(x); }), texts.primals + texts.agains);
  EXPECT_EQ(printed([&] { jit(grad(f))(one); }), texts.primal + texts.again);
  EXPECT_EQ(printed([&] { jit(grad(loss))(x); }), texts.primals + texts.agains);
  EXPECT_EQ(printed([&] { grad(jit(loss))(x); }), texts.primals + texts.agains);
  const auto linear = [&](auto g, const Array& at, const std::string& first,
                          const std::string& then) {
    std::function<Array(Array)> map;
    EXPECT_EQ(printed([&] { map = linearize(g, at).second; }), first);
    EXPECT_EQ(printed([&] { map(at); }), then);
  };
  linear(f, one, texts.primal, texts.again + texts.tangent);
  linear(vmap(f), x, texts.primals, texts.agains + texts.tangents);
}

// A rule that calls a program of primals and tangents together.
template <class Rule>
auto ruled_by(Rule rule_of) {
  const auto both = [](Array x, Array t) {
    debug::print("x {}", x);
    debug::print("t {}", t);
    return std::pair{x * x, 3.f * x * t};
  };
  return [=](Array x) {
    return custom_jvp([](Array u) { return u * u; },
                      [=](A1 primals, A1 tangents) {
                        return rule_of(both)(std::get<0>(primals), std::get<0>(tangents));
                      })(x);
  };
}

TEST(CustomJvpPrint, OfAProgramOfPrimalsAndTangents) {
  const Texts once{"x 1.0\n", "t 1.0\n", "x 0.0\nx 1.0\nx 2.0\n", "t 0.0\nt 1.0\nt 2.0\n", "", ""};
  expect_prints("jit", ruled_by([](auto both) { return jit(both); }), once);
  expect_prints("nested jit", ruled_by([](auto both) {
                  return jit([=](Array x, Array t) { return jit(both)(x, t); });
                }),
                once);
  Texts twice = once;
  twice.again = twice.primal;
  twice.agains = twice.primals;
  expect_prints("checkpoint", ruled_by([](auto both) { return checkpoint(both); }), twice);
  expect_prints("cond", ruled_by([](auto both) {
                  return [=](Array x, Array t) {
                    const auto other = [](Array y, Array s) { return std::pair{y, s}; };
                    return cond(sum(x) < 9.f, both, other, x, t);
                  };
                }),
                once);
  const Texts trips{"x 1.0\nx 1.0\n",
                    "t 1.0\nt 3.0\n",
                    "x 0.0\nx 1.0\nx 2.0\nx 0.0\nx 1.0\nx 4.0\n",
                    "t 0.0\nt 1.0\nt 2.0\nt 0.0\nt 3.0\nt 12.0\n",
                    "",
                    ""};
  expect_prints("scan", ruled_by([](auto both) {
                  return [=](Array x, Array t) {
                    const auto trip = [=](std::pair<Array, Array> c, none_t) {
                      return std::pair{both(c.first, c.second), c.first};
                    };
                    return scan(trip, std::pair{x, t}, none, {.length = 2}).first;
                  };
                }),
                trips);
}

// A rule that differentiates a function with a program inside.
template <class F>
auto differentiated_by_its_rule(F f) {
  return [=](Array x) {
    return custom_jvp(f, [f](A1 primals, A1 tangents) { return jvp(f, primals, tangents); })(x);
  };
}

TEST(CustomJvpPrint, OfProgramsThatARuleDifferentiates) {
  const auto cube = [](Array u) {
    debug::print("u {}", u);
    return u * u * u;
  };
  const Texts once{"u 1.0\n", "", "u 0.0\nu 1.0\nu 2.0\n", "", "", ""};
  expect_prints("jit", differentiated_by_its_rule([=](Array x) { return x * jit(cube)(x); }), once);
  expect_prints("cond", differentiated_by_its_rule([=](Array x) {
                  return x * cond(
                                 sum(x) < 9.f, cube, [](Array y) { return y; }, x);
                }),
                once);
  const Texts trips{"u 1.0\nu 1.0\n", "", "u 0.0\nu 1.0\nu 2.0\nu 0.0\nu 1.0\nu 8.0\n", "", "", ""};
  const auto loop = differentiated_by_its_rule([=](Array x) {
    const auto more = [](Array c) { return sum(c) < 100.f; };
    return x * while_loop(more, cube, x + 1.f);
  });
  std::function<Array(Array)> map;  // the trips of the linear map compute the primals again
  const std::string of_the_loop = "u 2.0\nu 8.0\n";
  EXPECT_EQ(printed([&] { map = linearize(loop, Array(1.f)).second; }), of_the_loop);
  EXPECT_EQ(printed([&] { map(Array(1.f)); }), of_the_loop);
  expect_prints("scan", differentiated_by_its_rule([=](Array x) {
                  const auto trip = [=](Array c, none_t) { return std::pair{cube(c), c}; };
                  return x * scan(trip, x, none, {.length = 2}).first;
                }),
                trips);
}

}  // namespace
}  // namespace shmap
