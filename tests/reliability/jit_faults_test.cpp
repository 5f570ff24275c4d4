// shmap-test: devices
// Failures of programs that are captured and replayed: kernels that throw, memory that is short.
// Errors come once and name their source, and the next call works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/fault.h"
#include "core/device/memory_space.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/memory_use.h"

namespace shmap {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int32_t>;

const Mesh& mesh() {
  static const Mesh m = make_mesh({4, 2}, {"i", "j"});
  return m;
}
Array split(std::int64_t rows = 8) {
  return device_put(reshape(arange(rows * 8, i32), {rows, 8}), {mesh(), P("i", "j")});
}

TEST(JitFaults, OfAKernelComeOutOfTheWaitingCall) {
  if (devices()[0].kind() != DeviceKind::cpu)
    GTEST_SKIP()
        << "CPU devices only: the replay of a CUDA graph does not call the functions of kernels";
  const Array x = split();
  const Ints given = x.to_vector<std::int32_t>();
  const auto body = [](Array b) { return psum(cumsum(b, 0), "i") + sort(b, 1); };
  const auto f = jit(shard_map(body, mesh(), {P("i", "j")}, P("i", "j")));
  const Ints wanted = f(x).to_vector<std::int32_t>();
  for (int warm = 0; warm < 3; ++warm) EXPECT_EQ(f(x).to_vector<std::int32_t>(), wanted);
  const std::vector<std::int64_t> held = test::bytes_in_use();
  for (int attempt = 0; attempt < 20; ++attempt) {
    for (int device = 0; device < 8; ++device) {
      bool failed = false;
      try {
        runtime().backend().synchronize();
        fault::Scoped fault("kernel@" + std::to_string(device) + "#1:throw");
        f(x).block_until_ready();
      } catch (const DeviceError& e) {
        failed = true;
        EXPECT_THAT(e.what(), HasSubstr("fault injected at kernel of device"));
        EXPECT_THAT(e.what(), HasSubstr("(op "));
        EXPECT_THAT(e.what(), HasSubstr("Device(id=" + std::to_string(device) + ")"));
        EXPECT_THAT(e.what(), HasSubstr("jit_faults_test.cpp:"));
      }
      EXPECT_TRUE(failed) << "device " << device;
      EXPECT_NO_THROW(runtime().backend().synchronize()) << "reported twice";
      ASSERT_EQ(f(x).to_vector<std::int32_t>(), wanted);
      ASSERT_EQ(test::bytes_in_use(), held);
    }
  }
  EXPECT_EQ(x.to_vector<std::int32_t>(), given);
}

TEST(JitFaults, TravelToWhatDependsOnThemAlone) {
  if (devices()[0].kind() != DeviceKind::cpu)
    GTEST_SKIP()
        << "CPU devices only: the replay of a CUDA graph does not call the functions of kernels";
  const Array x = split(), y = split() + 1;
  const auto f = jit([](Array a) { return a * 3 + 1; });
  const Ints wanted = f(x).to_vector<std::int32_t>();
  for (int warm = 0; warm < 3; ++warm) f(x).block_until_ready();
  Array failing;
  {
    fault::Scoped fault("kernel@5:throw");
    failing = f(x);
    EXPECT_THROW((failing + y).block_until_ready(), DeviceError);
  }
  EXPECT_EQ(f(x).to_vector<std::int32_t>(), wanted);
  EXPECT_THROW(f(failing).block_until_ready(), DeviceError);
  EXPECT_THROW(failing.to_vector<std::int32_t>(), DeviceError);
  failing = Array();
  for (int k = 0; k < 10; ++k) EXPECT_EQ(f(x).to_vector<std::int32_t>(), wanted);
}

// The n-th allocation fails, at the first call, when captured and when replayed.
TEST(JitFaults, OfAllocationsAreCleanWhereverTheyCome) {
  const auto body = [](Array b) {
    return psum(matmul(b, transpose(b)) * 2, "i") + all_gather(b, "j", {.axis = 1, .tiled = true});
  };
  const Array x = split(32), y = split(32) * 1;
  const auto program = shard_map(body, mesh(), {P("i", "j")}, P("i", "j"), {.check_vma = false});
  // (Twice, since a capture that fails is no failure: the call runs step by step.)
  const auto global = [&](Array a) { return sum(program(a) + 1, 1) + sum(program(flip(a, 0)), 1); };
  const Ints wanted = global(x).to_vector<std::int32_t>();
  int failures = 0;
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 2000) << "the program never passes";
    const auto f = jit(global);
    std::int64_t reached = 0;
    bool passed = true;
    std::vector<Array> kept;
    {
      fault::Scoped fault("allocate#" + std::to_string(n) + ":oom");
      for (int call = 0; call < 5; ++call) {
        try {
          kept.push_back(f(call % 2 ? y : x));
          kept.back().block_until_ready();
        } catch (const OutOfMemory& e) {
          passed = false;
          ++failures;
          EXPECT_THAT(e.what(), HasSubstr("out of memory on "));
        }
      }
      reached = fault::reached("allocate");
    }
    for (int call = 0; call < 4; ++call) ASSERT_EQ(f(x).to_vector<std::int32_t>(), wanted) << n;
    if (passed && reached < n) break;
  }
  EXPECT_GT(failures, 10);
}

TEST(JitFaults, OfTheMemoryLimitSayWhatIsHeld) {
  const Array x = device_put(ones({512, 1024}, i32), {mesh(), P("i", "j")});  // 256 KiB a device
  x.block_until_ready();
  const auto f = jit([](Array a) { return cumsum(a, 0) + 1; });
  const auto expect_refused = [&] {
    test::MemoryLimits limits(100'000);
    for (int k = 0; k < 20; ++k) {
      test::expect_error<OutOfMemory>(
          [&] { f(x).block_until_ready(); },
          {"out of memory on ", "SHMAP_MEMORY_LIMIT", "\n  in ", "jit_faults_test.cpp:"});
    }
  };
  expect_refused();  // traced
  Array y = f(x);
  expect_refused();  // captured
  const Ints wanted = y.to_vector<std::int32_t>();
  EXPECT_EQ(f(x).to_vector<std::int32_t>(), wanted);
  std::vector<Array> kept;
  for (int k = 0; k < 20; ++k) kept.push_back(f(x));
  expect_refused();  // replayed, where every result is held
  kept.clear();
  {
    test::MemoryLimits limits(100'000);
    for (int k = 0; k < 20; ++k) EXPECT_EQ(f(x).to_vector<std::int32_t>(), wanted);
  }
  EXPECT_EQ(y.to_vector<std::int32_t>(), wanted);
}

}  // namespace
}  // namespace shmap
