// The host has no memory while the library is used for the first time, for one allocation or until
// the call ends. The call fails with an error, and later calls work. Each case runs in a child, so
// that this process never uses a device.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "shmap/collectives.h"
#include "shmap/jit.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/child_process.h"
#include "tests/support/failing_new.h"

namespace shmap {
namespace {

using test::ChildResult;
using test::FailAt;
using test::Failing;
using test::in_child;

// Computes 8 · 8 · 8 · 3 with products of two libraries, a body, a collective and jit.
float program() {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = device_put(ones({8, 8}), {mesh, P("i", "j")});
  const Array y =
      shard_map([](Array b) { return psum(b, "i") * 0 + b; }, mesh, {P("i", "j")}, P("i", "j"))(x);
  const Array z = astype(matmul(astype(x, f64), astype(y, f64)), f32);
  return (sum(matmul(x, y)) + sum(z) + jit([](Array v) { return sum(v * 8.f); })(z * 0 + x))
      .item<float>();
}
constexpr float kWanted = 3 * 512;

// Runs `program` with a failure of the n-th allocation, and then without failures.
ChildResult with_failure(const char* executor, long n, Failing failing) {
  return in_child(
      {{"SHMAP_EXECUTOR", executor}, {"SHMAP_WORKERS", "2"}, {"SHMAP_DEVICES", "cpu:8"}}, [&] {
        bool failed = false, reached = false;
        float got = kWanted;
        {
          const FailAt fail(n, failing);
          try {
            got = program();
          } catch (const std::bad_alloc&) {
            failed = true;
          } catch (const Error&) {
            failed = true;
          }
          reached = test::one_failed;
        }
        if (failed && !reached) throw Error("an error without a failed allocation");
        if (got != kWanted) throw Error("wrong: " + std::to_string(got));
        const float after = program();
        if (after != kWanted) throw Error("wrong after: " + std::to_string(after));
        std::printf(reached ? "failed" : "passed");
      });
}

class FirstUse : public ::testing::TestWithParam<std::pair<const char*, Failing>> {};

TEST_P(FirstUse, MayFailAtAnyAllocation) {
  // The libraries are loaded here for all children: their initialisers allocate, and their
  // exceptions would end the process in dlopen, whoever calls it.
  for (const char* one_dnn : {"libdnnl.so.2", "libdnnl.so.3"})
    dlopen(one_dnn, RTLD_NOW | RTLD_LOCAL);
  const auto [executor, failing] = GetParam();
  int failures = 0;
  // Every one of the first allocations fails in turn (primitives are registered then), and fewer
  // and fewer of the later ones.
  for (long n = 1;; n += 1 + n / 32) {
    ASSERT_LT(n, 100'000) << "the program never passes";
    const ChildResult r = with_failure(executor, n, failing);
    ASSERT_EQ(r.exit_code, 0) << "allocation " << n << ": " << r.output << " signal " << r.signal;
    if (r.output == "passed") break;
    ++failures;
  }
  EXPECT_GT(failures, 50);
}

INSTANTIATE_TEST_SUITE_P(All, FirstUse,
                         ::testing::Values(std::pair{"inline", Failing::once},
                                           std::pair{"async", Failing::once},
                                           std::pair{"seeded", Failing::once},
                                           std::pair{"inline", Failing::for_good},
                                           std::pair{"async", Failing::for_good},
                                           std::pair{"seeded", Failing::for_good}),
                         [](const auto& info) {
                           return std::string(info.param.first) +
                                  (info.param.second == Failing::once ? "Once" : "ForGood");
                         });

}  // namespace
}  // namespace shmap
