// shmap-test: devices
// The host has no memory: the n-th operator new fails, n = 1, 2, … until the program passes. Each
// failure is a std::bad_alloc or an error of the library, failed calls hold no device memory, and
// everything works afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <string>
#include <vector>

#include "shmap/collectives.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/failing_new.h"
#include "tests/support/memory_use.h"

namespace shmap {
namespace {

using test::FailAt;
using test::one_failed;
using Values = std::vector<std::int32_t>;

const Mesh& mesh() {
  static const Mesh m = make_mesh({4, 2}, {"i", "j"});
  return m;
}

struct Program {
  const char* name;
  std::function<Array(Array)> body;  // of i32[2,4] blocks
};

const std::vector<Program>& programs() {
  static const std::vector<Program> all = {
      {"elementwise", [](Array x) { return x * 2 + 1; }},
      {"psum", [](Array x) { return psum(x, "i") + x; }},
      {"psum_both", [](Array x) { return psum(x, axes("i", "j")) * x; }},
      {"pmax", [](Array x) { return pmax(x, "j") - x; }},
      {"ppermute",
       [](Array x) {
         return ppermute(x, "i", {{0, 1}, {1, 2}, {3, 0}});
       }},
      {"all_gather", [](Array x) { return sum(all_gather(x, "i"), 0); }},
      {"psum_scatter",
       [](Array x) { return psum_scatter(x, "j", {.scatter_dimension = 1, .tiled = true}); }},
      {"all_to_all", [](Array x) { return all_to_all(x, "j", 0, 1, {.tiled = true}); }},
      {"matmul", [](Array x) { return matmul(x, matmul(transpose(x), x)); }},
      {"sort", [](Array x) { return sort(-x, 0) + cumsum(x, 1); }},
      {"index",
       [](Array x) {
         return concatenate({x[{range(), range(1, 4)}], x}, 1) + axis_index("i");
       }},
      {"chain",
       [](Array x) {
         for (int k = 0; k < 8; ++k) x = where(x > 3, x - 1, -x) + 1;
         return x;
       }},
  };
  return all;
}

TEST(HostMemory, MayEndAnywhere) {
  if (devices()[0].kind() != DeviceKind::cpu)
    GTEST_SKIP()
        << "CPU devices only: a CUDA driver does not survive a failed allocation of its own";
  const Array x = device_put(reshape(arange(64, i32), {8, 8}), {mesh(), P("i", "j")});
  const Values given = x.to_vector<std::int32_t>();
  for (const Program& program : programs()) {
    SCOPED_TRACE(program.name);
    const auto run = [&] {
      return shard_map(program.body, mesh(), {P("i", "j")}, P("i", "j"))(x)
          .to_vector<std::int32_t>();
    };
    const Values wanted = run();
    const std::vector<std::int64_t> held = test::bytes_in_use();
    int failures = 0;
    for (long n = 1;; ++n) {
      ASSERT_LT(n, 5000) << "the program never passes";
      bool passed = false;
      Values got;
      std::string text;
      try {
        FailAt fail(n);
        got = run();
        passed = true;
      } catch (const std::bad_alloc&) {
      } catch (const Error& e) {  // of a task
        text = e.what();
      }
      const bool reached = one_failed;
      if (passed) {
        EXPECT_EQ(got, wanted) << "allocation " << n;
      } else {
        EXPECT_TRUE(reached) << "allocation " << n << ": " << text;
      }
      failures += !passed;
      try {  // what a task met that nobody waited for
        ASSERT_EQ(test::bytes_in_use(), held) << "allocation " << n;
      } catch (const std::exception& e) {
        EXPECT_TRUE(reached) << e.what();
        ASSERT_EQ(test::bytes_in_use(), held) << "allocation " << n;
      }
      if (!reached) break;
    }
    EXPECT_GT(failures, 5);
    EXPECT_EQ(run(), wanted);
    EXPECT_EQ(x.to_vector<std::int32_t>(), given);
  }
}

}  // namespace
}  // namespace shmap
