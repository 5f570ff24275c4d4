// Counts which threads handle messages of other processes (times would depend on how busy the
// machine is): under mpirun (tests/CMakeLists.txt).
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/processes/exchanges.h"
#include "core/processes/processes.h"
#include "core/runtime/segment.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

constexpr int kCalls = 300;
// What takes a second or two on a machine of its own and has not ended by then shows nothing: other
// programs take the cores.
constexpr auto kBusyAfter = std::chrono::seconds(20);

class ProcessTurns : public testing::Test {
 protected:
  void SetUp() override {
    n_ = static_cast<std::int64_t>(devices().size());
    if (Processes::joined() == nullptr)
      GTEST_SKIP() << "this test needs several processes, and this is one";
  }
  // True if the messages between all processes go through shared memory.
  static bool linked() {
    const char* const memory = std::getenv("SHMAP_SHARED_MEMORY");
    if (memory != nullptr && std::string(memory) == "0") return false;
    return Processes::joined()->peers().node_size() == process_count();
  }
  // The device's place in the mesh: of several nodes, make_mesh takes one node's after the other's.
  static std::int64_t place_of(const Mesh& mesh, const Device& device) {
    const std::vector<Device>& order = mesh.devices().values();
    return std::find(order.begin(), order.end(), device) - order.begin();
  }
  static Exchanges& exchanges() { return Processes::joined()->exchanges(); }
  static std::int64_t ended() {
    const Exchanges::Turns turns = exchanges().turns();
    return turns.taken_by_thread + turns.taken_by_others;
  }

  std::int64_t n_ = 0;
};

// A waiting thread takes messages itself: the library's own thread is woken only where it slept,
// where a waiting thread went to sleep, or where it naps for longer than usual: it does so after 50
// naps of 0.2 ms or more without a new exchange, and one that may not end where it begins wakes it.
TEST_F(ProcessTurns, WhoeverWaitsTakesWhatComes) {
  const Mesh mesh = make_mesh({n_}, "i");
  const auto sum = jit(shard_map([](Array x) { return psum(x, "i"); }, mesh, {P("i")}, P()));
  const Array x = device_put(ones({2 * n_}), NamedSharding(mesh, P("i")));
  for (int i = 0; i < 4; ++i) sum(x).block_until_ready();
  const Exchanges::Turns before = exchanges().turns();
  std::int64_t slow = 0;  // calls that leave time for 50 naps
  for (int i = 0; i <= kCalls; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(sum(x).to_vector<float>(), std::vector<float>(2, static_cast<float>(n_)));
    slow += std::chrono::steady_clock::now() - begun >= std::chrono::milliseconds(9);
  }
  const Exchanges::Turns after = exchanges().turns();
  // One rest more may have begun before.
  EXPECT_LE(after.wakes - before.wakes, after.hand_overs - before.hand_overs + after.sleeps -
                                            before.sleeps + 1 + (linked() ? 0 : slow))
      << slow << " slow calls";
  EXPECT_GE(after.taken_by_thread + after.taken_by_others,
            before.taken_by_thread + before.taken_by_others + kCalls);
}

// A small exchange that finds the others' messages ends where it begins; of those that arrive in
// it, the last one does.
TEST_F(ProcessTurns, SmallExchangesEndWhereTheyBegin) {
  if (!linked()) GTEST_SKIP() << "messages go through MPI";
  const Mesh mesh = make_mesh({n_}, "i");
  const auto sum = jit(shard_map([](Array x) { return psum(x, "i"); }, mesh, {P("i")}, P()));
  for (const std::int64_t count : {1, 8, 500, 5000}) {
    const Array x = device_put(ones({count * n_}), NamedSharding(mesh, P("i")));
    for (int i = 0; i < 4; ++i) sum(x).block_until_ready();
    const std::int64_t before = exchanges().turns().at_once;
    for (int i = 0; i < kCalls; ++i) sum(x).block_until_ready();
    EXPECT_EQ(sum(x).to_vector<float>(),
              std::vector<float>(static_cast<std::size_t>(count), static_cast<float>(n_)));
    const auto at_once = static_cast<float>(exchanges().turns().at_once - before);
    // The sum is over all processes, because one process may always be the first to arrive.
    const Array all = sum(device_put(full({n_}, at_once), NamedSharding(mesh, P("i"))));
    if (count * 4 > (8 << 10)) {
      EXPECT_EQ(all.to_vector<float>()[0], 0.f) << count;
    } else {
      EXPECT_GT(all.to_vector<float>()[0], 0.f) << count;
    }
  }
}

// Collectives in one direction, in which one process runs ahead of the other, on two meshes in
// turn.
TEST_F(ProcessTurns, ValuesAreTheSameInAnyRhythm) {
  const Mesh mesh = make_mesh({n_}, "i"), other = make_mesh({n_}, "j");
  std::vector<std::pair<int, int>> shift;
  for (int d = 0; d + 1 < static_cast<int>(n_); ++d) shift.push_back({d, d + 1});
  const auto move =
      jit(shard_map([&](Array x) { return ppermute(x, "i", shift); }, mesh, {P("i")}, P("i")));
  const auto sum = jit(shard_map([](Array x) { return psum(x, "j"); }, other, {P("j")}, P()));
  Array x = device_put(ones({3 * n_}), NamedSharding(mesh, P("i")));
  const Array y = device_put(ones({n_}), NamedSharding(other, P("j")));
  std::vector<Array> sums;
  for (int i = 0; i < kCalls; ++i) {
    const Array moved = move(x);
    if (i % 3 == process_index() % 3) moved.block_until_ready();
    sums.push_back(sum(y));
    if (i % 7 == process_index() % 7) sums.back().block_until_ready();
    if (i % 50 == 49) {
      for (const Shard& shard : moved.addressable_shards())
        EXPECT_EQ(shard.data.to_vector<float>()[2], shard.device.id() == 0 ? 0.f : 1.f);
    }
  }
  for (const Array& s : sums) EXPECT_EQ(s.to_vector<float>()[0], static_cast<float>(n_));
}

// The processes come to each call at different times, so that messages of an exchange come before
// it begins, while its thread looks, and later, some together with those of the next exchange.
// Values that are added in place, and values that are copied meanwhile, must be those of this call.
TEST_F(ProcessTurns, ValuesAreOfTheCallWheneverMessagesCome) {
  const Mesh mesh = make_mesh({n_}, "i");
  const auto all = jit(shard_map(
      [](Array x) {
        return std::vector<Array>{psum(x, "i"),
                                  psum_scatter(x, "i", {.scatter_dimension = 1, .tiled = true}),
                                  all_to_all(x, "i", 1, 1, {.tiled = true}),
                                  all_gather_invariant(x, "i", {.axis = 0, .tiled = true})};
      },
      mesh, {P("i")}, {P(), P(none, "i"), P("i"), P()}));
  std::uint32_t state = 77u + static_cast<std::uint32_t>(process_index());
  for (const std::int64_t piece : {1, 3, 100, 400, 3000}) {
    const std::int64_t columns = piece * n_;
    // Row d of the array is device d's block: 1000 d + column + a number that distinguishes the
    // calls.
    const auto value = [&](std::int64_t d, std::int64_t c, int call) {
      return static_cast<float>(1000 * d + c + 7 * (call % 5));
    };
    std::vector<Array> x;
    for (int call = 0; call < 5; ++call) {
      std::vector<float> host;
      for (std::int64_t d = 0; d < n_; ++d)
        for (std::int64_t c = 0; c < columns; ++c) host.push_back(value(d, c, call));
      x.push_back(device_put(array(std::span<const float>(host), {n_, columns}),
                             NamedSharding(mesh, P("i"))));
    }
    const auto sum = [&](std::int64_t c, int call) {
      float s = 0;
      for (std::int64_t d = 0; d < n_; ++d) s += value(d, c, call);
      return s;
    };
    for (int call = 0; call < 60; ++call) {
      state = state * 1664525u + 1013904223u;
      if (state >> 30 != 0)
        std::this_thread::sleep_for(std::chrono::microseconds(state >> 16 & 127));
      const std::vector<Array> y = all(x[static_cast<std::size_t>(call % 5)]);
      if (state >> 29 & 1u) y[1].block_until_ready();
      const auto sums = y[0].to_vector<float>(), gathered = y[3].to_vector<float>();
      for (std::int64_t c = 0; c < columns; ++c)
        ASSERT_EQ(sums[static_cast<std::size_t>(c)], sum(c, call)) << c << " of call " << call;
      for (std::int64_t i = 0; i < n_ * columns; ++i)
        ASSERT_EQ(gathered[static_cast<std::size_t>(i)], value(i / columns, i % columns, call));
      for (const Shard& shard : y[1].addressable_shards()) {
        const auto own = shard.data.to_vector<float>();
        for (std::int64_t c = 0; c < piece; ++c)
          ASSERT_EQ(own[static_cast<std::size_t>(c)],
                    sum(place_of(mesh, shard.device) * piece + c, call));
      }
      for (const Shard& shard : y[2].addressable_shards()) {
        const auto own = shard.data.to_vector<float>();
        for (std::int64_t c = 0; c < columns; ++c)
          ASSERT_EQ(own[static_cast<std::size_t>(c)],
                    value(c / piece, place_of(mesh, shard.device) * piece + c % piece, call));
      }
    }
  }
}

// A process whose results are kept captures the function again, or runs its steps one by one, where
// the others replay a graph: it may decide that alone.
TEST_F(ProcessTurns, OneProcessCapturesWhileTheOthersReplay) {
  const Mesh mesh = make_mesh({n_}, "i");
  const auto f = jit(shard_map(
      [](Array x) {
        const Array total = psum(x, "i");
        const Array moved = ppermute(x + total, "i", ring_permutation("i", 1));
        return std::vector<Array>{total, moved, psum(moved * moved, "i")};
      },
      mesh, {P("i")}, {P(), P("i"), P()}));
  const auto value = [](std::int64_t device, int k) { return static_cast<float>(device + 10 * k); };
  const auto sum = [&](int k) {
    float s = 0;
    for (std::int64_t d = 0; d < n_; ++d) s += value(d, k);
    return s;
  };
  const auto expect_values = [&](const std::vector<Array>& y, int k) {
    ASSERT_EQ(y[0].to_vector<float>()[0], sum(k));
    float squares = 0;
    for (std::int64_t d = 0; d < n_; ++d)
      squares += (value(d, k) + sum(k)) * (value(d, k) + sum(k));
    ASSERT_EQ(y[2].to_vector<float>()[0], squares);
    for (const Shard& shard : y[1].addressable_shards()) {
      const std::int64_t left = (place_of(mesh, shard.device) + n_ - 1) % n_;
      ASSERT_EQ(shard.data.to_vector<float>()[0], value(left, k) + sum(k));
    }
  };
  std::vector<Array> x;
  for (int k = 0; k < 2; ++k) {
    std::vector<float> host;
    for (std::int64_t d = 0; d < n_; ++d) host.push_back(value(d, k));
    x.push_back(device_put(array(std::span<const float>(host), {n_}), NamedSharding(mesh, P("i"))));
  }
  const auto call = [&](int k) { return f(x[static_cast<std::size_t>(k)]); };
  for (int i = 0; i < 4; ++i) expect_values(call(i % 2), i % 2);
  // Three results, so that there is still room for graphs, and then more than a plan has room for.
  for (const int kept_results : {3, 12}) {
    for (int keeper = 0; keeper < process_count(); ++keeper) {
      std::vector<std::pair<int, std::vector<Array>>> kept;
      const std::int64_t before = graphs_captured();
      for (int i = 0; i < kept_results + 3; ++i) {
        const int k = (i + i / 3 + keeper) % 2;
        std::vector<Array> y = call(k);
        // Some of the keeper's calls are enqueued while others are still under way.
        if (keeper != process_index() || i % 2 == 0) expect_values(y, k);
        if (keeper == process_index() && i < kept_results) kept.emplace_back(k, std::move(y));
      }
      const std::int64_t captured = graphs_captured() - before;
      if (keeper != process_index()) {
        EXPECT_EQ(captured, 0) << "process " << keeper << " kept its results";
      } else {
        EXPECT_GT(captured, 0);
      }
      for (const auto& [k, y] : kept) expect_values(y, k);
    }
  }
}

// Nobody waits right after somebody did, so that the library's thread takes over.
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

// A wait for many collectives takes longer than a thread looks in vain. While messages come the
// thread must go on looking and hand over nothing. A busy machine makes pauses between messages, so
// that one of many rounds has to show it.
TEST_F(ProcessTurns, AThreadGoesOnLookingWhileMessagesCome) {
  if (!linked()) GTEST_SKIP() << "messages go through MPI";
  constexpr auto kInVain = std::chrono::microseconds(300);  // as in core/cpu/executor/waiting.h
  const Mesh mesh = make_mesh({n_}, "i");
  // The root needs nothing from the others, so that it begins all broadcasts at once.
  const auto broadcast = jit(shard_map(
      [](Array x) { return pbroadcast(broadcast_from(x, "i", 0), "i"); }, mesh, {P("i")}, P("i")));
  const auto sum = jit(shard_map([](Array x) { return psum(x, "i"); }, mesh, {P("i")}, P()));
  const Array x = device_put(ones({16384 * n_}), NamedSharding(mesh, P("i")));
  const Array y = device_put(ones({n_}), NamedSharding(mesh, P("i")));
  int long_waits = 0, kept = 0;
  const auto until = std::chrono::steady_clock::now() + kBusyAfter;
  enum { open, shown, too_late } state = open;  // of the root
  for (int round = 0; round < 60 && state == open; ++round) {
    sum(y).block_until_ready();
    const std::int64_t before = exchanges().turns().hand_overs;
    for (int i = 0; i < 200 << round % 4; ++i) broadcast(x);
    const Array last = sum(y);
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(last.to_vector<float>()[0], static_cast<float>(n_));
    if (std::chrono::steady_clock::now() - begun >= 2 * kInVain) {
      ++long_waits;
      kept += exchanges().turns().hand_overs == before;
    }
    if (kept > 0)
      state = shown;
    else if (std::chrono::steady_clock::now() > until)
      state = too_late;
    const Array of_root =
        broadcast(device_put(full({n_}, static_cast<float>(state)), y.sharding()));
    const float told = of_root.addressable_shards()[0].data.to_vector<float>()[0];
    state = told == 1.f ? shown : told == 2.f ? too_late : open;
  }
  if (state == too_late) GTEST_SKIP() << "the machine is busy";
  if (process_index() != 0) return;  // the others mostly wait at each broadcast
  EXPECT_GT(long_waits, 0);
  EXPECT_GT(kept, 0) << "of " << long_waits;
}

// A root that runs so far ahead that there is no room for its messages waits for room and sends
// them itself. One of many rounds has to show it, in which no process loses its core.
TEST_F(ProcessTurns, WhoeverRunsAheadWaitsForRoom) {
  if (!linked()) GTEST_SKIP() << "messages go through MPI";
  if (process_count() > 2) GTEST_SKIP() << "the processes share cores";
  constexpr int kAhead = 600;  // there is room for 256 messages
  const Mesh mesh = make_mesh({n_}, "i");
  const auto broadcast = jit(shard_map(
      [](Array x) { return pbroadcast(broadcast_from(x, "i", 0), "i"); }, mesh, {P("i")}, P("i")));
  const auto sum = jit(shard_map([](Array x) { return psum(x, "i"); }, mesh, {P("i")}, P()));
  const Array x = device_put(ones({n_}), NamedSharding(mesh, P("i")));
  std::int64_t most = 0;
  constexpr std::int64_t kTooLate = kAhead + 1;
  const auto end = std::chrono::steady_clock::now() + kBusyAfter;
  for (int round = 0; round < 1000 && most < kAhead; ++round) {
    sum(x).block_until_ready();
    const std::int64_t before = exchanges().turns().at_once;
    for (int i = 0; i < kAhead; ++i) {
      broadcast(x).block_until_ready();
      if (process_index() == 0) continue;
      const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(1000);
      while (std::chrono::steady_clock::now() < until) {
      }
    }
    most = std::max(most, exchanges().turns().at_once - before);
    if (most < kAhead && std::chrono::steady_clock::now() > end) most = kTooLate;
    // All processes go on until the root has reached it.
    const Array root =
        device_put(full({n_}, static_cast<float>(most)), NamedSharding(mesh, P("i")));
    most = static_cast<std::int64_t>(
        broadcast(root).addressable_shards()[0].data.to_vector<float>()[0]);
  }
  if (most == kTooLate) GTEST_SKIP() << "the machine is busy";
  EXPECT_EQ(most, kAhead);
}

// A root whose receivers have come back ends its broadcasts where they begin, although those that
// found no room still queue when it goes on, and it waits for none of them. Ten rounds in a row
// have to show it: single ones may by chance. Beside busy loops they did so at the third try at the
// latest; a machine that has no time for ten tries shows nothing.
TEST_F(ProcessTurns, WhoeverHasFoundNoRoomEndsExchangesAtOnceAgain) {
  if (!linked()) GTEST_SKIP() << "messages go through MPI";
  constexpr int kAhead = 600;   // there is room for 256 messages
  constexpr int kAfter = 3000;  // fewer than may be in flight
  constexpr int kRounds = 10;
  const std::int64_t wanted = kRounds * (process_count() == 2 ? 2000 : 2500);  // ended at once
  const Mesh mesh = make_mesh({n_}, "i");
  const auto broadcast = jit(shard_map(
      [](Array x) { return pbroadcast(broadcast_from(x, "i", 0), "i"); }, mesh, {P("i")}, P("i")));
  const auto sum = jit(shard_map([](Array x) { return psum(x, "i"); }, mesh, {P("i")}, P()));
  const Array x = device_put(ones({n_}), NamedSharding(mesh, P("i")));
  std::int64_t at_once = 0, most = 0;
  int tries = 0;
  constexpr std::int64_t kTooLate = kRounds * kAfter + 1;
  const auto end = std::chrono::steady_clock::now() + kBusyAfter / 4;
  for (; tries < 1000 && at_once < wanted; ++tries) {
    at_once = 0;
    for (int round = 0; round < kRounds; ++round) {
      sum(x).block_until_ready();
      if (process_index() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (int i = 0; i < kAhead; ++i) broadcast(x).block_until_ready();
      const std::int64_t before = exchanges().turns().at_once;
      for (int i = 0; i < kAfter; ++i) broadcast(x).block_until_ready();
      at_once += exchanges().turns().at_once - before;
    }
    most = std::max(most, at_once);
    if (at_once < wanted && std::chrono::steady_clock::now() > end) at_once = kTooLate;
    // All processes go on until the root has reached it.
    const Array root =
        device_put(full({n_}, static_cast<float>(at_once)), NamedSharding(mesh, P("i")));
    at_once = static_cast<std::int64_t>(
        broadcast(root).addressable_shards()[0].data.to_vector<float>()[0]);
  }
  if (at_once == kTooLate && tries < 10) GTEST_SKIP() << "the machine is busy";
  if (process_index() != 0) return;  // the others mostly wait at each broadcast
  EXPECT_GE(most, wanted) << "in " << tries << " tries";
}

// A thread that computes does not look for messages: the library's thread takes them, and tasks
// that wait for them run.
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
