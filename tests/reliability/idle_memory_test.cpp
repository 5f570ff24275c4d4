// Memory that plans keep between their calls: what they do where the memory of a space runs out.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "core/device/runtime.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

constexpr std::int64_t kElements = 1 << 20;  // 4 MiB of f32
constexpr std::int64_t kBytes = 4 * kElements;

// While the object lives, the first space has room for so many further blocks of kBytes, and some
// small ones.
class Room {
 public:
  explicit Room(std::int64_t blocks) {
    space().reclaim();
    space().trim();
    space().set_limit(space().bytes_in_use() + blocks * kBytes + (64 << 10));
  }
  ~Room() { space().set_limit(before_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  static MemorySpace& space() { return *runtime().backend().devices()[0].space; }

 private:
  const std::int64_t before_ = space().limit();
};

using Function = std::function<Array(Array)>;

// Each leaves its result in memory of its plan.
std::vector<Function> functions(int count) {
  std::vector<Function> all;
  for (int k = 0; k < count; ++k)
    all.emplace_back(jit([k](Array x) { return cumsum(x * static_cast<float>(k), 0); }));
  return all;
}

TEST(IdleMemory, OfPlansThatDoNotRunIsGivenUp) {
  const Array x = ones({kElements});
  const std::vector<Function> all = functions(12);
  const Room room(5);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t k = 0; k < all.size(); ++k) {
      for (int call = 0; call < 3; ++call)
        EXPECT_EQ(all[k](x)[1].item<float>(), 2.f * static_cast<float>(k)) << k;
    }
  }
  // What an eager operation needs, too.
  std::vector<Array> kept;
  for (int k = 0; k < 4; ++k) kept.push_back(cumsum(x, 0));
  EXPECT_EQ(kept[3][1].item<float>(), 2.f);
  EXPECT_THROW(
      {
        for (int k = 0; k < 8; ++k) kept.push_back(cumsum(x, 0));
      },
      OutOfMemory);
}

// Copies to fixed places, and what a graph needs, are no more than a means to be faster.
TEST(IdleMemory, ACallRunsStepByStepWithoutIt) {
  const auto f = jit([](Array x) { return sum(sin(x) * x); });
  std::vector<Array> arguments;
  std::vector<float> want;
  for (int k = 0; k < 12; ++k) {
    arguments.push_back(full({kElements}, static_cast<float>(k)));
    want.push_back(sum(sin(arguments.back()) * arguments.back()).item<float>());
  }
  for (const std::int64_t blocks : {1, 2, 3}) {
    const Room room(blocks);
    for (int round = 0; round < 3; ++round)
      for (std::size_t k = 0; k < arguments.size(); ++k)
        EXPECT_NEAR(f(arguments[k]).item<float>(), want[k], 1e-3f * std::abs(want[k])) << k;
  }
}

TEST(IdleMemory, IsUsedByCallsThatNeedAnotherLayout) {
  const auto f = jit([](Array a, Array b) {
    Array t = b + 1.f;
    for (int k = 0; k < 30; ++k) t = flip(sin(t), 0);
    return std::pair{a + t, t};
  });
  const Array b = ones({1024});
  std::vector<Array> kept;
  for (int k = 0; k < 12; ++k) {  // donates its first argument, whose memory the result gets
    Array a = ones({1024}) * static_cast<float>(k);
    auto [x, y] = f(std::move(a), b);
    kept.push_back(x);
    kept.push_back(y);
  }
  kept.clear();
  const Array a = ones({1024});
  for (int call = 0; call < 3; ++call) f(a, b).first.block_until_ready();
  reset_counters();
  for (int call = 0; call < 100; ++call) f(a, b).first.block_until_ready();
  EXPECT_EQ(counters().copies, 0);
  EXPECT_EQ(counters().allocations, 0);  // the results' places are a graph's
}

}  // namespace
}  // namespace shmap
