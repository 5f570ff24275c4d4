// shmap-test: devices
// Loops of few trips under jit: written out into one plan, with the values and the communication
// that they have eagerly; loops of more trips keep a plan for their body.
#include "core/transforms/control_flow/unroll.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/device/runtime.h"
#include "core/runtime/flow_task.h"
#include "shmap/shmap.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostDecides = "which the host decides";
// A loop that stays one: the host launches its trips, or, where its steps are small and its devices
// run host code, a device runs it as a task.
const auto kIsLoop = ::testing::AnyOf(HasSubstr(kHostDecides), HasSubstr("flow_task["));

// The number of loops that are not unrolled.
std::size_t loops_of(const std::string& plan) {
  std::size_t n = 0;
  for (const std::string word : {kHostDecides, "flow_task["})
    for (std::size_t at = plan.find(word); at != plan.npos; at = plan.find(word, at + 1)) ++n;
  return n;
}

Mesh mesh8() { return make_mesh({8}, "i"); }
Array numbers(Shape shape) { return reshape(arange(shape.num_elements()), shape); }

// The plan of f(args...), which is the same eagerly and under jit.
template <class F, class... A>
std::string plan_of(F f, const A&... args) {
  expect_same_under_jit(f, Communication::no_more, args...);
  const auto jitted = jit(f);
  jitted(args...);
  return jitted.plan_text();
}

Array powers(Array x, int trips) {
  return fori_loop(
      0, trips, [](Array i, Array c) { return c * 0.5f + astype(i, f32); }, x);
}

TEST(Unroll, AFewTripsAreOneSegment) {
  const auto plan = [](int trips) {
    return plan_of([=](Array x) { return powers(x, trips); }, numbers({4}));
  };
  EXPECT_THAT(plan(1), Not(kIsLoop));
  EXPECT_THAT(plan(8), Not(kIsLoop));
  EXPECT_THAT(plan(kUnrolledEquations), kIsLoop);
  EXPECT_THAT(plan(0), Not(HasSubstr("compute")));
}

// Where devices run loops by themselves, a loop of many trips stays one task if each trip would be
// one step. A loop of few trips is unrolled, and so is one whose trips read their number.
TEST(Unroll, ManyShortTripsStayATask) {
  const auto plan = [](int trips, bool asks) {
    return plan_of(
        [=](Array a, Array x) {
          return fori_loop(
              0, trips,
              [=](Array i, Array c) {
                const Array next = tanh(matmul(a, c));
                return asks ? next * astype(i, f32) : next;
              },
              x);
        },
        numbers({160, 160}) * 0.0001f, numbers({160}) * 0.01f);
  };
  EXPECT_THAT(plan(8, false), Not(kIsLoop));
  EXPECT_THAT(plan(40, true), Not(kIsLoop));
  if (flow_task_p.kernel(runtime().backend().kind()).run)
    EXPECT_THAT(plan(40, false), HasSubstr("scan of 40"));
  else
    EXPECT_THAT(plan(40, false), Not(kIsLoop));
}

TEST(Unroll, TheBoundIsOfEquationsTimesTrips) {
  const auto loop = [](int equations, int trips) {
    const ClosedJaxpr jaxpr = make_jaxpr([=](Array x) {
      return scan(
                 [=](Array c, auto) {
                   for (int e = 0; e < equations; ++e) c = sin(c);
                   return std::pair{c, Array(0.f)};
                 },
                 x, none, {.length = trips})
          .first;
    })(ShapedArray({4}, f32));
    return unroll(*jaxpr.impl().jaxpr)->eqns.size();
  };
  const int n = static_cast<int>(kUnrolledEquations);
  EXPECT_GE(loop(4, n / 4), static_cast<std::size_t>(n));
  EXPECT_EQ(loop(4, n / 4 + 1), 1u);
  EXPECT_EQ(loop(n + 1, 1), 1u);
  EXPECT_EQ(loop(1, 1'000'000'000), 1u);
}

TEST(Unroll, LoopsInLoopsCountAsTheyRun) {
  const auto nested = [](int outer, int inner) {
    return plan_of(
        [=](Array x) {
          return fori_loop(
              0, outer, [=](Array, Array c) { return powers(c, inner); }, x);
        },
        numbers({4}));
  };
  EXPECT_THAT(nested(3, 4), Not(kIsLoop));
  // The inner loops alone are unrolled, in the plan of the outer one's body.
  const std::string plan = nested(static_cast<int>(kUnrolledEquations), 3);
  EXPECT_EQ(loops_of(plan), 1u) << plan;
}

TEST(Unroll, ScansWithXsAndYsForwardAndBack) {
  for (const bool reverse : {false, true}) {
    const auto f = [=](Array x, Array xs) {
      const auto [carry, ys] = scan(
          [&](std::pair<Array, Array> c, Array v) {
            const Array s = c.first + v * x;
            return std::pair{std::pair{s, c.first}, std::pair{s * 2.f, c.second}};
          },
          std::pair{zeros({3}), ones({3})}, xs, {.reverse = reverse});
      return std::tuple{carry, ys};
    };
    EXPECT_THAT(plan_of(f, numbers({3}), numbers({5, 3})), Not(kIsLoop));
  }
}

TEST(Unroll, WhatIsKnownWhenTracedIsComputedThen) {
  const auto f = [](Array x) {
    return fori_loop(
        2, 5, [](Array i, Array c) { return c + astype(i * i, f32); }, x);
  };
  const std::string plan = plan_of(f, numbers({4}));
  EXPECT_THAT(plan, Not(HasSubstr("convert_element_type")));
  EXPECT_THAT(plan, HasSubstr("16.0"));
}

TEST(Unroll, LoopsOfCollectivesInABody) {
  const auto ring = [](int trips) {
    return shard_map(
        [=](Array x) {
          return fori_loop(
              0, trips,
              [](Array i, std::pair<Array, Array> c) {
                const Array next = ppermute(
                    c.first, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 0}});
                return std::pair{next, c.second + next * astype(i, f32)};
              },
              std::pair{x, zeros({1, 2})});
        },
        mesh8(), P("i"), P("i"));
  };
  EXPECT_THAT(plan_of(ring(8), numbers({8, 2})), Not(kIsLoop));
  EXPECT_THAT(plan_of(ring(static_cast<int>(kUnrolledEquations)), numbers({8, 2})),
              HasSubstr(kHostDecides));
}

// A carry that begins as a host scalar, or is the same everywhere, and comes to vary.
TEST(Unroll, CarriesThatComeToVary) {
  const auto f = shard_map(
      [](Array x) {
        const auto [c, s] = fori_loop(
            0, 3,
            [&](Array, std::pair<Array, Array> v) {
              return std::pair{v.first + sum(x), psum(v.first, "i") + v.second};
            },
            std::pair{Array(0.f), Array(1.f)});
        return std::pair{x + c, s};
      },
      mesh8(), P("i"), {P("i"), P()});
  EXPECT_THAT(plan_of(f, numbers({16})), Not(kIsLoop));
}

TEST(Unroll, InsideOfLoopsThatTheHostDecides) {
  const auto f = [](Array x) {
    return while_loop([](Array c) { return sum(c) < 40.f; },
                      [](Array c) { return powers(c, 3) + 7.f; }, x);
  };
  const std::string plan = plan_of(f, numbers({4}));
  EXPECT_EQ(loops_of(plan), 1u) << plan;
}

TEST(Unroll, OverGlobalArrays) {
  const auto f = [](Array x) {
    return scan([](Array c, Array v) { return std::pair{c + sum(v), c * v}; }, Array(0.f), x);
  };
  const Array x = device_put(numbers({4, 16}), NamedSharding(mesh8(), P(none, "i")));
  EXPECT_THAT(plan_of(f, x), Not(kIsLoop));
}

TEST(Unroll, PrintsKeepTheirOrder) {
  const auto f = jit([](Array x) {
    return fori_loop(
        0, 3,
        [](Array i, Array c) {
          debug::print("trip {} of {}", i, c);
          return c + 1;
        },
        x);
  });
  for (int call = 0; call < 3; ++call) {
    ::testing::internal::CaptureStdout();
    f(array<std::int32_t>({5}, {}));
    runtime().backend().synchronize();
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "trip 0 of 5\ntrip 1 of 6\ntrip 2 of 7\n");
  }
}

}  // namespace
}  // namespace shmap::test
