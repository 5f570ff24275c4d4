// jit under load: two threads that share functions, calls that are queued without an end, replays
// that leave nothing behind. In child processes, once for each way to place and run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>

#include "core/device/memory_space.h"
#include "shmap/shmap.h"
#include "tests/support/child_process.h"
#include "tests/support/memory_use.h"

namespace shmap {
namespace {

#ifdef __SANITIZE_THREAD__
// The sanitizer is slow, and checks threads; the inline executor has none.
constexpr int kFewer = 25;
constexpr const char* kExecutors[] = {"async", "seeded:5"};
#else
constexpr int kFewer = 1;
constexpr const char* kExecutors[] = {"async", "inline", "seeded:5"};
#endif
constexpr int kThreads = 2;

void in_each_configuration(const std::function<void()>& run) {
  for (const char* devices : {"cpu:8", "cpu:8/8"}) {
    for (const char* executor : kExecutors) {
      const test::ChildResult r = test::in_child(
          {{"SHMAP_DEVICES", devices}, {"SHMAP_EXECUTOR", executor}, {"SHMAP_WORKERS", "4"}}, [&] {
            alarm(110);  // instrumented, and beside other tests, a minute is not enough
            run();
          });
      EXPECT_EQ(r.exit_code, 0) << devices << " " << executor << ": " << r.output << " signal "
                                << r.signal;
      EXPECT_EQ(r.output, "") << devices << " " << executor;
    }
  }
}

Mesh mesh8() { return make_mesh({8}, "i"); }

TEST(JitLoad, TwoThreadsShareFunctions) {
  in_each_configuration([] {
    const Mesh mesh = mesh8();
    const auto total = jit(shard_map([](Array x) { return psum(x * 2, "i"); }, mesh, P("i"), P()));
    const auto turned = jit(shard_map(
        [](Array x) {
          return ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 0}});
        },
        mesh, P("i"), P("i")));
    const auto global = jit([](Array x, Array y) { return sum(x * y, 0) + 1; });
    const Array shared = device_put(arange(8), NamedSharding(mesh, P("i")));
    std::string wrong[kThreads];
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        try {
          const Array own = shared + t;
          Array round = own;
          for (int k = 0; k < 5000 / kFewer && wrong[t].empty(); ++k) {
            float got = 0, wanted = 0;
            if (k % 3 == 0) {
              got = total(own).item<float>();
              wanted = 2 * (28.f + 8 * float(t));
            } else if (k % 3 == 1) {
              got = global(shared, own).item<float>();
              wanted = 141.f + 28.f * float(t);
            } else {
              for (int turn = 0; turn < 8; ++turn) round = turned(round);
              got = round[5].item<float>();
              wanted = 5.f + float(t);
            }
            if (got != wanted)
              wrong[t] = std::to_string(got) + " at call " + std::to_string(k) + ", wanted " +
                         std::to_string(wanted);
          }
        } catch (const std::exception& e) {
          wrong[t] = e.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& w : wrong)
      if (!w.empty()) throw Error(w);
  });
}

std::int64_t held() {
  const std::vector<std::int64_t> bytes = test::bytes_in_use();
  return *std::max_element(bytes.begin(), bytes.end());
}

TEST(JitLoad, QueuedCallsAndReplaysLeaveNothingBehind) {
  in_each_configuration([] {
    const auto f =
        jit(shard_map([](Array x) { return pmean(x, "i") + x - x; }, mesh8(), P("i"), P("i")));
    Array x = device_put(arange(8 * 1024), NamedSharding(mesh8(), P("i")));
    for (int k = 0; k < 20; ++k) x = f(x);
    const std::int64_t before = held();
    for (MemorySpace* space : runtime().backend().spaces()) space->reset_peak();
    for (int k = 0; k < 100'000 / kFewer; ++k) x = f(x);  // nobody waits
    if (held() != before) throw Error("memory grew to " + std::to_string(held()));
    for (MemorySpace* space : runtime().backend().spaces()) {
      const std::int64_t limit = 4 * before + (1 << 20);
      if (space->peak_bytes() > limit)
        throw Error("a peak of " + std::to_string(space->peak_bytes()));
    }
    for (int k = 0; k < 10'000 / kFewer; ++k) {
      x = f(std::move(x));
      x.block_until_ready();
    }
    if (held() > before) throw Error("replays hold " + std::to_string(held()));
    if (x[0].item<float>() != x[1024].item<float>()) throw Error("a wrong mean");
  });
}

}  // namespace
}  // namespace shmap
