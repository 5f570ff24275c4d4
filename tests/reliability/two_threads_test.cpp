// Two threads that use the same devices: eager ops and mapped functions with collectives, 10,000
// iterations in all, each result checked. Runs in child processes, once for each placement and
// executor; under ThreadSanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "shmap/collectives.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/child_process.h"

namespace shmap {
namespace {

using Ints = std::vector<std::int32_t>;

constexpr int kThreads = 2;
#ifdef __SANITIZE_THREAD__
constexpr int kIterations = 2000;  // of each thread
#else
constexpr int kIterations = 5000;
#endif

const Mesh& mesh() {
  static const Mesh m = make_mesh({4, 2}, {"i", "j"});
  return m;
}

std::string check(const char* what, const Ints& got, const Ints& wanted) {
  if (got == wanted) return "";
  return std::string(what) + ": [0] = " + std::to_string(got.at(0)) + ", wanted " +
         std::to_string(wanted.at(0));
}

// Returns "" if all was right. All threads use `shared`; k gives each iteration its own values.
std::string iteration(const Array& shared, int k) {
  const Array x = shared + k;
  const std::int32_t sum_of_x = 63 * 32 + 64 * k;
  switch (k % 5) {
    case 0:
      return check("sum", {sum(x).item<std::int32_t>()}, {sum_of_x});
    case 1: {
      const Array y =
          shard_map([](Array b) { return psum(b, axes("i", "j")); }, mesh(), {P("i", "j")}, P())(x);
      return check("psum", {sum(y).item<std::int32_t>()}, {sum_of_x});
    }
    case 2: {
      const auto f = shard_map(
          [](Array b) {
            b = ppermute(b, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}}) * 2;
            return all_gather(b, "j", {.axis = 1, .tiled = true});
          },
          mesh(), {P("i", "j")}, P("i", none), {.check_vma = false});
      Ints wanted;
      for (int e = 0; e < 64; ++e) wanted.push_back(2 * ((e + 48) % 64 + k));
      return check("ppermute", f(x).to_vector<std::int32_t>(), wanted);
    }
    case 3: {
      const Array y = transpose(device_put(x, {mesh(), P("j")}));
      return check("transpose", y[1].to_vector<std::int32_t>(),
                   {1 + k, 9 + k, 17 + k, 25 + k, 33 + k, 41 + k, 49 + k, 57 + k});
    }
    default: {
      try {
        concatenate({x, reshape(x, {64})});
        return "concatenate of unlike ranks passed";
      } catch (const ValueError&) {
      }
      const Array y = matmul(x - x + 1, x);
      return check("matmul", {sum(y).item<std::int32_t>()}, {8 * sum_of_x});
    }
  }
}

void share_devices_and_arrays() {
  const Array shared = device_put(reshape(arange(64, i32), {8, 8}), {mesh(), P("i", "j")});
  std::atomic<bool> stop{false};
  std::string wrong[kThreads];
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (int k = 0; k < kIterations && !stop; ++k) {
          wrong[t] = iteration(shared, t * 1000 + k % 997);
          if (!wrong[t].empty()) stop = true;
        }
      } catch (const std::exception& e) {
        wrong[t] = e.what();
        stop = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& w : wrong)
    if (!w.empty()) throw Error(w);
  if (sum(shared).item<std::int32_t>() != 63 * 32) throw Error("the shared array changed");
}

TEST(Threads, ShareDevicesAndArrays) {
  for (const char* devices : {"cpu:8", "cpu:8/8"}) {
    for (const char* executor : {"async", "inline", "seeded:5"}) {
      const test::ChildResult r = test::in_child(
          {{"SHMAP_DEVICES", devices}, {"SHMAP_EXECUTOR", executor}, {"SHMAP_WORKERS", "4"}},
          share_devices_and_arrays);
      EXPECT_EQ(r.exit_code, 0) << devices << " " << executor << ": " << r.output << " signal "
                                << r.signal;
      EXPECT_EQ(r.output, "") << devices << " " << executor;
    }
  }
}

}  // namespace
}  // namespace shmap
