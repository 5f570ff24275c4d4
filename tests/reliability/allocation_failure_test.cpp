// shmap-test: devices
// The n-th allocation fails, n = 1, 2, … until the program passes: each failure is an OutOfMemory,
// nothing leaks, the arrays given keep their values, and the library goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "core/base/fault.h"
#include "shmap/collectives.h"
#include "shmap/io.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/error_text.h"
#include "tests/support/memory_use.h"

namespace shmap {
namespace {

using Values = std::vector<std::vector<std::int32_t>>;

const Mesh& mesh() {
  static const Mesh m = make_mesh({4, 2}, {"i", "j"});
  return m;
}

struct Inputs {
  Array split;  // i32[8,8] over both axes
  Array rows;   // i32[8,8] over 'i'
  Array whole;  // i32[8,8] on the default device
};

Inputs inputs() {
  const Array x = reshape(arange(64, i32), {8, 8});
  return {device_put(x, {mesh(), P("i", "j")}), device_put(x * 3, {mesh(), P("i")}), x + 7};
}

using Arrays = std::vector<Array>;
struct Program {
  const char* name;
  std::function<Arrays(const Inputs&)> run;
};

const std::vector<Program>& programs() {
  static const auto map = [](auto body) {
    return [body](const Inputs& in) {
      return Arrays{shard_map(body, mesh(), {P("i", "j")}, P("i", "j"))(in.split)};
    };
  };
  static const std::string path = ::testing::TempDir() + "shmap_allocation_failure_" +
                                  std::to_string(static_cast<long>(::getpid())) + ".npy";
  static const std::vector<Program> all = {
      {"chain", [](const Inputs& in) { return Arrays{(in.split + 1) * in.split - in.split}; }},
      {"two_shardings", [](const Inputs& in) { return Arrays{in.split + in.rows}; }},
      {"with_unplaced", [](const Inputs& in) { return Arrays{in.split * in.whole}; }},
      {"donated", [](const Inputs& in) { return Arrays{abs(-(in.split + 1))}; }},
      {"where", [](const Inputs& in) { return Arrays{where(in.rows > 5, in.rows, in.split)}; }},
      {"sum",
       [](const Inputs& in) {
         return Arrays{sum(in.split), sum(in.split, 0)};
       }},
      {"max_min",
       [](const Inputs& in) {
         return Arrays{max(in.split, 1), min(in.rows)};
       }},
      {"argmax", [](const Inputs& in) { return Arrays{argmax(in.split, 1)}; }},
      {"matmul", [](const Inputs& in) { return Arrays{matmul(in.split, in.rows)}; }},
      {"matmul_whole", [](const Inputs& in) { return Arrays{matmul(in.rows, in.whole)}; }},
      {"einsum", [](const Inputs& in) { return Arrays{einsum("ij,kj->ki", in.split, in.rows)}; }},
      {"reshape",
       [](const Inputs& in) {
         return Arrays{reshape(in.split, {4, 16})};
       }},
      {"transpose", [](const Inputs& in) { return Arrays{transpose(in.split) + in.split}; }},
      {"slice",
       [](const Inputs& in) {
         return Arrays{slice(in.split, {1, 2}, {7, 5})};
       }},
      {"concatenate",
       [](const Inputs& in) {
         return Arrays{concatenate({in.split, in.rows, in.whole}, 1)};
       }},
      {"take", [](const Inputs& in) { return Arrays{take(in.split, in.whole % 8, 0)}; }},
      {"gathered_index",
       [](const Inputs& in) {
         return Arrays{in.rows[3], in.rows[{1, 2}]};
       }},
      {"range_index",
       [](const Inputs& in) {
         return Arrays{in.split[{range(2, 6), 3}]};
       }},
      {"array_index",
       [](const Inputs& in) {
         return Arrays{in.split[array<std::int32_t>({3, 0, 7}, {3})]};
       }},
      {"update",
       [](const Inputs& in) {
         return Arrays{dynamic_update_slice(in.split, in.whole[{range(0, 2), range(0, 2)}],
                                            {Array(3), Array(4)})};
       }},
      {"cumsum",
       [](const Inputs& in) {
         return Arrays{cumsum(in.split, 0), cumsum(in.rows, 1)};
       }},
      {"sort",
       [](const Inputs& in) {
         return Arrays{sort(-in.split, 0), argsort(in.rows)};
       }},
      {"pad",
       [](const Inputs& in) {
         return Arrays{pad(in.rows, {{1, 0}, {0, 2}}, 9)};
       }},
      {"creation",
       [](const Inputs&) {
         return Arrays{ones({3, 3}, i32), arange(7, i32), eye(3, i32)};
       }},
      {"replicate",
       [](const Inputs& in) {
         return Arrays{device_put(in.split, {mesh(), P()})};
       }},
      {"reshard",
       [](const Inputs& in) {
         return Arrays{device_put(in.split, {mesh(), P("j", "i")})};
       }},
      {"place",
       [](const Inputs& in) {
         return Arrays{device_put(in.whole, {mesh(), P(axes("j", "i"))})};
       }},
      {"to_device", [](const Inputs& in) { return Arrays{device_put(in.split, devices()[5])}; }},
      {"npy",
       [](const Inputs& in) {
         save_npy(path, in.split);
         const Arrays out{load_npy(path), load_npy(path, {mesh(), P("j", "i")})};
         std::remove(path.c_str());
         return out;
       }},
      {"body_elementwise", map([](Array x) { return x * 2 + 1; })},
      {"body_closure",
       [](const Inputs& in) {
         return Arrays{shard_map([&](Array x) { return x + in.whole[0][1]; }, mesh(), {P("i", "j")},
                                 P("i", "j"))(in.split)};
       }},
      {"body_reshard",
       [](const Inputs& in) {
         return Arrays{shard_map([](Array x, Array y) { return x - y; }, mesh(),
                                 {P("j", "i"), P("j", "i")}, P("j", "i"))(in.split, in.rows)};
       }},
      {"psum", map([](Array x) { return psum(x, "i") + x; })},
      {"psum_both",
       [](const Inputs& in) {
         return Arrays{shard_map([](Array x) { return psum(x, axes("j", "i")); }, mesh(),
                                 {P("i", "j")}, P())(in.split)};
       }},
      {"psum_groups", map([](Array x) {
         return psum(x, "i", {.axis_index_groups = {{0, 3}, {1, 2}}});
       })},
      {"pmax", map([](Array x) { return pmax(x, "j") - pmin(x, "i"); })},
      {"ppermute", map([](Array x) {
         return ppermute(x, "i", {{0, 1}, {1, 2}, {3, 0}}) + x;
       })},
      {"pshuffle", map([](Array x) {
         return pshuffle(x, "j", {1, 0});
       })},
      {"all_gather", map([](Array x) { return sum(all_gather(x, "i"), 0); })},
      {"all_gather_tiled",
       map([](Array x) { return all_gather(x, axes("i", "j"), {.axis = 1, .tiled = true}); })},
      {"all_gather_invariant",
       [](const Inputs& in) {
         return Arrays{
             shard_map([](Array x) { return all_gather_invariant(x, "i", {.tiled = true}); },
                       mesh(), {P("i", "j")}, P(none, "j"))(in.split)};
       }},
      {"psum_scatter",
       map([](Array x) { return psum_scatter(x, "j", {.scatter_dimension = 1, .tiled = true}); })},
      {"pscatter",
       [](const Inputs& in) {
         return Arrays{shard_map([](Array x) { return pscatter(x, "i", {.tiled = true}); }, mesh(),
                                 {P()}, P("i"))(in.whole)};
       }},
      {"all_to_all", map([](Array x) { return all_to_all(x, "j", 0, 1, {.tiled = true}); })},
      {"broadcast_from", map([](Array x) { return broadcast_from(x, "i", 2) * x; })},
      {"axis_index", map([](Array x) { return x * axis_index("i") + axis_index("j"); })},
  };
  return all;
}

Values values(const Arrays& arrays) {
  Values out;
  for (const Array& x : arrays) out.push_back(astype(x, i32).to_vector<std::int32_t>());
  return out;
}

TEST(AllocationFailure, IsCleanWhereverItComes) {
  const Inputs in = inputs();
  const Values given = values({in.split, in.rows, in.whole});
  int failing = 0;  // programs that fail; views allocate nothing
  for (const Program& program : programs()) {
    SCOPED_TRACE(program.name);
    const Values wanted = values(program.run(in));
    const std::vector<std::int64_t> held = test::bytes_in_use();
    int failures = 0;
    for (int n = 1;; ++n) {
      ASSERT_LT(n, 2000) << "the program never passes";
      bool passed = false;
      std::int64_t reached = 0;
      try {
        fault::Scoped fault("allocate#" + std::to_string(n) + ":oom");
        struct Count {
          std::int64_t& to;
          ~Count() { to = fault::reached("allocate"); }
        } count{reached};
        const Values got = values(program.run(in));
        passed = true;
        EXPECT_EQ(got, wanted) << "with allocation " << n << " failing";
      } catch (const OutOfMemory& e) {
        ++failures;
        EXPECT_THAT(e.what(), ::testing::HasSubstr("out of memory on "));
        EXPECT_THAT(e.what(), ::testing::HasSubstr("allocation_failure_test.cpp:"));
        EXPECT_THAT(e.what(), ::testing::HasSubstr("\n  in "));  // the op
      }
      ASSERT_EQ(test::bytes_in_use(), held) << "allocation " << n << " failed, and memory leaked";
      if (passed && reached < n) break;
    }
    failing += failures > 0;
    EXPECT_EQ(values({in.split, in.rows, in.whole}), given);
    EXPECT_EQ(values(program.run(in)), wanted);
    EXPECT_EQ(test::bytes_in_use(), held);
  }
  EXPECT_GE(failing, 35);
}

// The fault is in one memory space only, whose name is in the text.
TEST(AllocationFailure, NamesTheMemorySpace) {
  const Inputs in = inputs();
  const auto spaces = runtime().backend().spaces();
  for (MemorySpace* space : spaces) {
    fault::Scoped fault("allocate@" + std::to_string(space->id()) + ":oom");
    test::expect_error<OutOfMemory>([&] { (in.split + 1).block_until_ready(); },
                                    {space->name().c_str(), "bytes", "in use", "a fault"});
  }
  EXPECT_EQ((in.split + 1).to_vector<std::int32_t>().back(), 64);
}

TEST(MemoryLimit, IsAnErrorThatSaysWhatIsHeld) {
  const Array x = device_put(zeros({512, 1024}, i32), {mesh(), P("i", "j")});  // 256 KiB a device
  x.block_until_ready();
  const std::vector<std::int64_t> held = test::bytes_in_use();
  {
    test::MemoryLimits limits(100'000);
    for (int attempt = 0; attempt < 100; ++attempt) {
      test::expect_error<OutOfMemory>(
          [&] { (x + 1).block_until_ready(); },
          {"out of memory on ", "256.0 KiB (262144 bytes) asked for", "SHMAP_MEMORY_LIMIT",
           "in use by", "cached", "limit", "largest free block", "largest live arrays: ",
           "256.0 KiB", "Let go of arrays", "\n  in add\n  at ", "allocation_failure_test.cpp:"});
    }
    EXPECT_EQ(test::bytes_in_use(), held);
    EXPECT_EQ((zeros({8, 8}, i32) + 1).to_vector<std::int32_t>(),
              std::vector<std::int32_t>(64, 1));  // what fits goes on
  }
  EXPECT_EQ(sum(x + 1).item<std::int32_t>(), 512 * 1024);
  EXPECT_EQ(test::bytes_in_use(), held);
}

// From the second attempt on, the first devices get their blocks from the cache.
TEST(MemoryLimit, MayBeReachedInTheMiddleOfAStep) {
  const Array x = device_put(ones({64, 64}, i32), {mesh(), P("i", "j")});  // 2 KiB a device
  x.block_until_ready();
  const std::vector<std::int64_t> held = test::bytes_in_use();
  int failures = 0;
  for (int blocks = 0; blocks < 8; ++blocks) {
    SCOPED_TRACE(blocks);
    const test::MemoryLimits limits(blocks * 2048);
    for (int attempt = 0; attempt < 3; ++attempt) {
      try {
        EXPECT_EQ((x + 1).to_vector<std::int32_t>(), std::vector<std::int32_t>(64 * 64, 2));
      } catch (const OutOfMemory& e) {
        ++failures;
        EXPECT_THAT(e.what(), ::testing::HasSubstr("\n  in add\n  at "));
      }
      ASSERT_EQ(test::bytes_in_use(), held);
    }
  }
  EXPECT_GE(failures, 3);
  EXPECT_EQ(sum(x + 1).item<std::int32_t>(), 2 * 64 * 64);
}

TEST(MemoryLimit, HoldsInsideABody) {
  const Array x = device_put(zeros({512, 1024}, i32), {mesh(), P("i", "j")});
  x.block_until_ready();
  const auto f =
      shard_map([](Array b) { return psum(b + 1, "i"); }, mesh(), {P("i", "j")}, P(none, "j"));
  const std::vector<std::int64_t> held = test::bytes_in_use();
  {
    test::MemoryLimits limits(100'000);
    for (int attempt = 0; attempt < 100; ++attempt)
      EXPECT_THROW(f(x).block_until_ready(), OutOfMemory);
  }
  EXPECT_EQ(test::bytes_in_use(), held);
  EXPECT_EQ(f(x).to_vector<std::int32_t>(), std::vector<std::int32_t>(128 * 1024, 4));
}

}  // namespace
}  // namespace shmap
