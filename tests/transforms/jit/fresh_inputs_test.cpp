// shmap-test: devices
// Programs under jit that are called with arrays at ever new addresses stop capturing, and give the
// right values.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/warning.h"
#include "core/runtime/segment.h"

namespace shmap {
namespace {

// There is a graph for each of the first sets of addresses, and as many with fixed memory for
// inputs whose addresses change.
constexpr std::int64_t kMostGraphs = 16;
constexpr int kCalls = 100;

Mesh all_devices() { return make_mesh({static_cast<int>(devices().size())}, "i"); }

Array batch(const Mesh& mesh, int i, PartitionSpec spec = P("i")) {
  const std::int64_t n = 4 * static_cast<std::int64_t>(devices().size());
  return device_put(arange(n, f32) + static_cast<float>(i), NamedSharding(mesh, spec));
}
std::vector<float> numbers(std::int64_t n, float scale, float shift) {
  std::vector<float> all(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i) * scale + shift;
  return all;
}

TEST(FreshInputs, CaptureABoundedNumberOfGraphs) {
  const Mesh mesh = all_devices();
  auto f = jit(shard_map([](Array w, Array x) { return psum(w * x, "i") + x; }, mesh, {P(), P("i")},
                         P("i")));
  auto g =
      shard_map([](Array w, Array x) { return psum(w * x, "i") + x; }, mesh, {P(), P("i")}, P("i"));
  const Array w = device_put(full({4}, 3.f), NamedSharding(mesh, P()));
  std::vector<Array> alive;  // so that no address comes back
  const std::int64_t before = graphs_captured();
  for (int i = 0; i < kCalls; ++i) {
    alive.push_back(batch(mesh, i));
    ASSERT_EQ(f(w, alive.back()).to_vector<float>(), g(w, alive.back()).to_vector<float>()) << i;
  }
  EXPECT_LE(graphs_captured() - before, kMostGraphs);
  // The first ones have graphs of their own still.
  const std::int64_t after = graphs_captured();
  for (int i = 1; i < 8; ++i) {
    const Array& x = alive[static_cast<std::size_t>(i)];
    ASSERT_EQ(f(w, x).to_vector<float>(), g(w, x).to_vector<float>());
  }
  EXPECT_EQ(graphs_captured(), after);
}

TEST(FreshInputs, OfALoopThatUpdatesItsParameters) {
  const Mesh mesh = all_devices();
  const auto n = 4 * static_cast<std::int64_t>(devices().size());
  auto step = jit([](Array w, Array x) { return w * 0.5f + x; });
  Array w = device_put(zeros({n}, f32), NamedSharding(mesh, P("i")));
  std::vector<float> want(static_cast<std::size_t>(n), 0.f);
  std::vector<Array> alive;
  const std::int64_t before = graphs_captured();
  for (int i = 0; i < kCalls; ++i) {
    alive.push_back(batch(mesh, i % 7));
    w = step(std::move(w), alive.back());
    const std::vector<float> x = numbers(n, 1, static_cast<float>(i % 7));
    for (std::size_t k = 0; k < want.size(); ++k) want[k] = want[k] * 0.5f + x[k];
  }
  EXPECT_EQ(w.to_vector<float>(), want);
  EXPECT_LE(graphs_captured() - before, kMostGraphs);
}

TEST(FreshInputs, WhoseResultsAreKept) {
  const Mesh mesh = all_devices();
  const auto n = 4 * static_cast<std::int64_t>(devices().size());
  auto f = jit([](Array x, Array y) { return std::tuple(x + y, x * 2.f); });
  std::vector<Array> alive, kept;
  const std::int64_t before = graphs_captured();
  for (int i = 0; i < kCalls; ++i) {
    alive.push_back(batch(mesh, i));
    auto [sum, twice] = f(alive.back(), alive.front());
    kept.push_back(sum);
    if (i % 3 == 0) kept.push_back(twice);
    if (i % 10 == 9) kept.erase(kept.begin(), kept.end() - 4);
    ASSERT_EQ(sum.to_vector<float>(), numbers(n, 2, static_cast<float>(i)));
    ASSERT_EQ(twice.to_vector<float>(), numbers(n, 2, static_cast<float>(2 * i)));
  }
  EXPECT_LE(graphs_captured() - before, 2 * kMostGraphs);
}

// A result that is an input is the caller's array, not the memory to which it was copied.
TEST(FreshInputs, MayBeResults) {
  const Mesh mesh = all_devices();
  const auto n = 4 * static_cast<std::int64_t>(devices().size());
  auto f = jit(shard_map(
      [](Array x) {
        return std::tuple(reshape(x, {2, 2}), x + 1.f);
      },
      mesh, {P("i")}, std::tuple(P("i"), P("i"))));
  std::vector<Array> alive, views;
  for (int i = 0; i < 40; ++i) {
    alive.push_back(batch(mesh, i));
    auto [view, more] = f(alive.back());
    views.push_back(view);
    ASSERT_EQ(more.to_vector<float>(), numbers(n, 1, static_cast<float>(i + 1)));
  }
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(views[static_cast<std::size_t>(i)].to_vector<float>(),
              numbers(n, 1, static_cast<float>(i)));
}

// Blocks that are one buffer in one call, and several in another.
TEST(FreshInputs, MayShareMemoryOrNot) {
  const Mesh mesh = all_devices();
  const auto n = 4 * static_cast<std::int64_t>(devices().size());
  auto f = jit(shard_map([](Array x) { return x + 1.f; }, mesh, {P(none)}, P(none)));
  auto apart =
      shard_map([](Array x) { return all_gather_invariant(x, "i", {.axis = 0, .tiled = true}); },
                mesh, {P("i")}, P(none));
  std::vector<Array> alive;
  const std::int64_t before = graphs_captured();
  for (int i = 0; i < kCalls; ++i) {
    alive.push_back(i % 5 < 2 ? apart(batch(mesh, i)) : batch(mesh, i, P(none)));
    ASSERT_EQ(f(alive.back()).to_vector<float>(), numbers(n, 1, static_cast<float>(i + 1)));
  }
  EXPECT_LE(graphs_captured() - before, 2 * kMostGraphs);
}

// Addresses that stay the same get their own graph, even if there were others before.
TEST(FreshInputs, AreCapturedWhereTheyComeBack) {
  const Mesh mesh = all_devices();
  auto f = jit([](Array x) { return x * 2.f + 1.f; });
  std::vector<Array> alive;
  for (int i = 0; i < 20; ++i) f(alive.emplace_back(batch(mesh, i)));
  const Array x = batch(mesh, 1);
  for (int i = 0; i < 20; ++i) f(x).block_until_ready();
  reset_counters();
  const std::int64_t captured = graphs_captured();
  f(x).block_until_ready();
  EXPECT_EQ(counters().copies, 0);
  EXPECT_EQ(graphs_captured(), captured);
}

std::string warned;

TEST(FreshInputs, ThatAreLargeRunStepByStep) {
  if (devices()[0].kind() != DeviceKind::cpu)
    GTEST_SKIP() << "the arrays are too large for simulated GPUs: CPU devices only";
  constexpr std::int64_t kRow = 1 << 20;
  const Array all = zeros({28, kRow}, f32).block_until_ready();
  auto f = jit([](Array x) { return sum(x + 1.f); });
  warned.clear();
  set_warning_handler([](std::string_view text) noexcept { warned += text; });
  const std::int64_t before = graphs_captured();
  for (std::int64_t i = 0; i < 11; ++i) {
    const Array x = all[range(i, i + 17)];  // a view, 68 MiB
    ASSERT_EQ(f(x).item<float>(), static_cast<float>(17 * kRow));
  }
  set_warning_handler(nullptr);
  if (graphs_captured() - before < 8)
    GTEST_SKIP() << "slices are copies on these devices, so that no argument is a fresh view";
  EXPECT_EQ(graphs_captured() - before, 8);
  EXPECT_NE(warned.find("at new addresses"), std::string::npos) << warned;
  EXPECT_EQ(warned.find("at new addresses"), warned.rfind("at new addresses"));  // once
}

}  // namespace
}  // namespace shmap
