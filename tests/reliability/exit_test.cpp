// shmap-test: gpu
// Leaving the process while arrays live and tasks run: no crash, no hang, and the program's own
// exit code. Libraries that are opened late are destroyed early at exit, while a worker may be
// inside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/child_process.h"

namespace shmap {
namespace {

using test::ChildResult;
using test::executors;
using test::in_child;

Array kept_until_exit;

// The extent of a product; products of the simulator are slow.
std::int64_t extent(std::int64_t n) { return test::gpus_are_simulated() ? n / 4 : n; }

void expect_left(const ChildResult& r, const std::string& output) {
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  EXPECT_EQ(r.output, output);
}

// Ones over all devices: a product of them is work for the workers, on all of them.
Array split_ones(DType dtype, std::int64_t n) {
  return device_put(ones({n, n}, dtype), {make_mesh({8}, "i"), P("i")});
}

TEST(Exit, WithArraysAlive) {
  for (const char* executor : executors()) {
    SCOPED_TRACE(executor);
    expect_left(in_child({{"SHMAP_EXECUTOR", executor}},
                         [] {
                           kept_until_exit = split_ones(f32, extent(512));
                           static Array product = matmul(kept_until_exit, kept_until_exit);
                           static Array unwaited = matmul(product, kept_until_exit);
                           std::printf("done");
                         }),
                "done");
  }
}

TEST(Exit, WithAnErrorNobodyLookedAt) {
  const ChildResult r =
      in_child({{"SHMAP_FAULT", "kernel:throw"}, {"SHMAP_EXECUTOR", "async"}}, [] {
        const Array x = ones({2048, 2048});
        kept_until_exit = x;
      });
  EXPECT_TRUE(r.exit_code == 0 ||
              (r.exit_code == 1 && r.output.find("fault injected") != r.output.npos))
      << r.exit_code << r.output << " signal " << r.signal;
}

// The first product opens its library, which compiles on a worker: the process may leave at any
// time meanwhile.
TEST(Exit, WhileTheFirstProductRuns) {
  const DType dtypes[] = {f32, bf16, f64};
  for (int k = 0; k < 24; ++k) {
    SCOPED_TRACE(k);
    expect_left(in_child({{"SHMAP_EXECUTOR", "async"}, {"SHMAP_WORKERS", "4"}},
                         [&] {
                           const Array x = split_ones(dtypes[k % 3], extent(128));
                           kept_until_exit = matmul(x, x);
                           std::this_thread::sleep_for(std::chrono::microseconds(250 * k));
                           std::printf("done");
                         }),
                "done");
  }
}

TEST(Exit, FromAnotherThreadWhileTheFirstProductRuns) {
  for (int k = 0; k < 12; ++k) {
    SCOPED_TRACE(k);
    expect_left(in_child({{"SHMAP_EXECUTOR", "async"}, {"SHMAP_WORKERS", "4"}},
                         [&] {
                           const Array x = split_ones(f32, extent(128));
                           std::thread([&] {
                             kept_until_exit = matmul(x, x);
                             std::this_thread::sleep_for(std::chrono::microseconds(500 * k));
                             std::printf("done");
                             std::exit(0);
                           }).join();
                         }),
                "done");
  }
}

// Queued work that nobody reads is never run: it would take a core half a minute.
TEST(Exit, LeavesWhatIsQueued) {
  if (test::gpus_are_simulated())
    GTEST_SKIP() << "a simulated GPU runs its queued work when it is polled";
  const auto start = std::chrono::steady_clock::now();
  expect_left(in_child({{"SHMAP_EXECUTOR", "async"}, {"SHMAP_WORKERS", "1"}},
                       [] {
                         const Mesh mesh = make_mesh({8}, "i");
                         const Array x = device_put(ones({2048, 2048}, f64), {mesh, P("i")});
                         const Array y = device_put(x, {mesh, P()});
                         static std::vector<Array> queued;
                         for (int k = 0; k < 40; ++k) queued.push_back(matmul(x, y));
                         std::printf("done");
                       }),
              "done");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// Constructed before any library was opened, so destroyed after the last of them.
struct ReadsAtExit {
  Array x;
  ~ReadsAtExit() {
    const Array more = matmul(x, x) + 1;
    std::printf("%g %g", static_cast<double>(max(x).item<float>()),
                static_cast<double>(max(more).item<float>()));
  }
};

TEST(Exit, StaticVariablesMayReadAndCompute) {
  for (const char* executor : executors()) {
    SCOPED_TRACE(executor);
    for (int k = 0; k < 6; ++k) {
      const int value = 2 << k;
      expect_left(in_child({{"SHMAP_EXECUTOR", executor}},
                           [&] {
                             static ReadsAtExit last;
                             const Array x = split_ones(f32, 128);
                             if (k % 2 == 1) matmul(x, x).block_until_ready();
                             last.x = x;
                             for (int n = 0; n <= k; ++n) last.x = matmul(last.x, x) * (1.f / 64);
                           }),
                  std::to_string(value) + " " + std::to_string(128 * value * value + 1));
    }
  }
}

// A destructor of a static variable is the first to multiply.
TEST(Exit, TheFirstProductOfAll) {
  for (const char* executor : executors()) {
    SCOPED_TRACE(executor);
    expect_left(in_child({{"SHMAP_EXECUTOR", executor}},
                         [] {
                           static ReadsAtExit last;
                           last.x = split_ones(f32, 128);
                         }),
                "1 129");
  }
}

// The output of a program's prints is seen even if nobody waits for it and it is not computed yet.
TEST(Exit, PrintsWhatIsStillBeingComputed) {
  for (const char* executor : executors()) {
    for (const bool elsewhere : {false, true}) {
      SCOPED_TRACE(std::string(executor) + (elsewhere ? ", from another thread" : ""));
      expect_left(in_child({{"SHMAP_EXECUTOR", executor}, {"SHMAP_WORKERS", "2"}},
                           [&] {
                             const std::int64_t n = extent(512);
                             const auto f = jit([n](Array x) {
                               Array y = x;
                               for (int k = 0; k < 3; ++k)
                                 y = matmul(y, x) * (1.f / static_cast<float>(n));
                               debug::print("max {}", max(y));
                               return y;
                             });
                             const Array x = split_ones(f32, n);
                             const auto calls = [&] {
                               for (int call = 0; call < 3; ++call) kept_until_exit = f(x);
                             };
                             if (!elsewhere) return calls();
                             std::thread([&] {
                               calls();
                               std::exit(0);
                             }).join();
                           }),
                  "max 1.0\nmax 1.0\nmax 1.0\n");
    }
  }
}

}  // namespace
}  // namespace shmap
