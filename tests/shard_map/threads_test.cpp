// shmap-test: devices
// Two threads of a program run shard_maps on the same devices, over the same arrays.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <cstdlib>
#include <exception>
#include <string_view>
#include <thread>
#include <vector>

namespace shmap {
namespace {

constexpr int kThreads = 2;

// Runs work(0) and work(1) at the same time, and rethrows what they throw.
template <class F>
void in_threads(F work) {
  std::exception_ptr errors[kThreads];
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      try {
        work(t);
      } catch (...) {
        errors[t] = std::current_exception();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors)
    if (e != nullptr) std::rethrow_exception(e);
}

// x: f32[4,n], its rows over "i". Row r of the result is (sum of all rows) + row r - 1, in a ring.
Array sum_and_shift(const Mesh& mesh, const Array& x) {
  return shard_map(
      [](Array row) {
        return psum(row, "i") + ppermute(row, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
      },
      mesh, P("i"), P("i"))(x);
}

// Row r of a holds r + 1 everywhere.
Array rows(const Mesh& mesh, std::int64_t n) {
  return device_put(broadcast_to(reshape(arange(4) + 1, {4, 1}), {4, n}),
                    NamedSharding(mesh, P("i")));
}

void expect_sum_and_shift(const Array& got, std::int64_t n, float scale) {
  const std::vector<float> values = got.to_vector<float>();
  ASSERT_EQ(values.size(), static_cast<std::size_t>(4 * n));
  for (std::int64_t r = 0; r < 4; ++r) {
    const float wanted = scale * static_cast<float>(10 + (r + 3) % 4 + 1);
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(values[static_cast<std::size_t>(r * n + i)], wanted) << r << ", " << i;
  }
}

TEST(TwoThreads, RunManySmallPrograms) {
  // The executor seeded queues even the smallest task: a tenth takes as long there.
  const char* executor = std::getenv("SHMAP_EXECUTOR");
  const int steps = executor != nullptr && std::string_view(executor) == "seeded" ? 1'000 : 10'000;
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = rows(mesh, 2);
  in_threads([&](int t) {
    const auto scale = static_cast<float>(t + 1);
    for (int step = 0; step < steps; ++step) {
      const Array got = sum_and_shift(mesh, x * scale);
      if (step % 100 == 0) expect_sum_and_shift(got, 2, scale);
    }
  });
}

// Large enough to be queued: both threads add readers to x while its earlier readers run.
TEST(TwoThreads, RunLargeProgramsOverOneArray) {
  constexpr std::int64_t kColumns = 1 << 17;
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = rows(mesh, kColumns);
  in_threads([&](int t) {
    const auto scale = static_cast<float>(t + 1);
    for (int step = 0; step < 5; ++step)
      expect_sum_and_shift(sum_and_shift(mesh, x * scale), kColumns, scale);
  });
}

// One thread reads a result with which the other computes; the latter notes when the result is
// done.
TEST(TwoThreads, ReadAndUseOneResultThatIsPending) {
  constexpr std::int64_t kColumns = 1 << 15;
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  for (int round = 0; round < 10; ++round) {
    const Array y = sum_and_shift(mesh, rows(mesh, kColumns));
    in_threads([&](int t) {
      if (t == round % kThreads) y.block_until_ready();
      expect_sum_and_shift(t == 0 ? y : y + y, kColumns, t == 0 ? 1 : 2);
    });
  }
}

// The last owner of memory that tasks still use is one thread in one round and the other in the
// next.
TEST(TwoThreads, LetGoOfPendingArraysOfEachOther) {
  constexpr std::int64_t kColumns = 1 << 15;
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  for (int round = 0; round < 10; ++round) {
    Array mine[kThreads];
    for (Array& a : mine) a = sum_and_shift(mesh, rows(mesh, kColumns));
    Array sums[kThreads];
    const Array both = mine[0] + mine[1];
    in_threads([&](int t) {
      mine[t] = Array();
      sums[t] = both + both;
    });
    for (const Array& s : sums) expect_sum_and_shift(s, kColumns, 4);
  }
}

TEST(TwoThreads, SeeTheErrorsOfTheirOwnPrograms) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = rows(mesh, 2);
  in_threads([&](int t) {
    for (int step = 0; step < 100; ++step) {
      if (t == 0) {
        const auto bad = shard_map([](Array row) { return psum(row, "k"); }, mesh, P("i"), P());
        EXPECT_THROW(bad(x), CollectiveError);
      } else {
        expect_sum_and_shift(sum_and_shift(mesh, x), 2, 1);
      }
    }
  });
}

}  // namespace
}  // namespace shmap
