// Who handles what comes from other processes, counted rather than timed (a busy machine makes
// every time long): under mpirun (tests/CMakeLists.txt).
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "core/processes/processes.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

constexpr int kCalls = 300;

class ProcessTurns : public testing::Test {
 protected:
  void SetUp() override {
    n_ = static_cast<std::int64_t>(devices().size());
    if (Processes::joined() == nullptr)
      GTEST_SKIP() << "this test needs several processes, and this is one";
  }
  static Exchanges& exchanges() { return Processes::joined()->exchanges(); }
  static std::int64_t ended() {
    const Exchanges::Turns turns = exchanges().turns();
    return turns.taken_by_thread + turns.taken_by_others;
  }

  std::int64_t n_ = 0;
};

// A thread that waits takes what comes itself: the library's own thread is woken only where it
// slept, or where a thread that waited went to sleep.
TEST_F(ProcessTurns, WhoeverWaitsTakesWhatComes) {
  const Mesh mesh = make_mesh({n_}, "i");
  const auto sum = jit(shard_map([](Array x) { return psum(x, "i"); }, mesh, {P("i")}, P()));
  const Array x = device_put(ones({2 * n_}), NamedSharding(mesh, P("i")));
  for (int i = 0; i < 4; ++i) sum(x).block_until_ready();
  const Exchanges::Turns before = exchanges().turns();
  for (int i = 0; i < kCalls; ++i) sum(x).block_until_ready();
  EXPECT_EQ(sum(x).to_vector<float>(), std::vector<float>(2, static_cast<float>(n_)));
  const Exchanges::Turns after = exchanges().turns();
  // One more sleep may have begun before.
  EXPECT_LE(after.wakes - before.wakes,
            after.hand_overs - before.hand_overs + after.sleeps - before.sleeps + 1);
  EXPECT_GE(after.taken_by_thread + after.taken_by_others,
            before.taken_by_thread + before.taken_by_others + kCalls);
}

// Nobody waits, right after somebody did: the library's thread takes it over.
TEST_F(ProcessTurns, WhatNobodyWaitsForEndsToo) {
  const Mesh mesh = make_mesh({n_}, "i");
  const auto sum = jit(shard_map([](Array x) { return psum(x, "i"); }, mesh, {P("i")}, P()));
  const Array x = device_put(ones({2 * n_}), NamedSharding(mesh, P("i")));
  for (int i = 0; i < 20; ++i) {
    sum(x).block_until_ready();
    const std::int64_t before = ended();
    const Array y = sum(x);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (ended() == before && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    ASSERT_GT(ended(), before);
    EXPECT_EQ(y.to_vector<float>()[1], static_cast<float>(n_));
  }
}

// A thread that computes does not look: what comes meanwhile is taken by the library's thread, and
// what waits for it runs.
TEST_F(ProcessTurns, ExchangesGoOnBehindComputing) {
  const Mesh mesh = make_mesh({n_}, "i");
  const auto f = jit(shard_map(
      [](Array x, Array w) {
        Array shifted = x;
        for (int i = 0; i < 4; ++i) shifted = psum(shifted, "i") / static_cast<float>(2);
        return std::vector<Array>{shifted, matmul(w, w)};
      },
      mesh, {P("i"), P()}, {P(), P()}));
  const Array x = device_put(ones({2 * n_}), NamedSharding(mesh, P("i")));
  const Array w = device_put(ones({256, 256}), NamedSharding(mesh, P()));
  for (int i = 0; i < 10; ++i) {
    const std::vector<Array> y = f(x, w);
    float wanted = 1;
    for (int k = 0; k < 4; ++k) wanted *= static_cast<float>(n_) / 2;
    EXPECT_EQ(y[1].to_vector<float>()[7], 256.f);
    EXPECT_EQ(y[0].to_vector<float>()[0], wanted);
  }
}

}  // namespace
}  // namespace shmap
