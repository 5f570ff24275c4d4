// Layouts of memory for captured programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "tests/runtime/planning.h"

namespace shmap {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kNever = Allocation::kNever;

class PlanLayout : public ::testing::Test {
 protected:
  MemorySpace& space(std::size_t i = 0) const { return *backend->devices()[i].space; }
  std::unique_ptr<Backend> backend = test::make_backend("2/2", cpu::Mode::inline_);
};

void check_layout(std::span<const Allocation> tape, const MemoryLayout& layout) {
  ASSERT_EQ(layout.places.size(), tape.size());
  std::int64_t escapes = 0;
  for (std::size_t i = 0; i < tape.size(); ++i) {
    const auto& p = layout.places[i];
    ASSERT_EQ(p.space, tape[i].space);
    ASSERT_EQ(p.bytes, tape[i].bytes);
    if (tape[i].escapes()) {
      ++escapes;
      ASSERT_EQ(p.slab, -1);
      ASSERT_EQ(p.offset, MemoryLayout::kEscapes);
      continue;
    }
    const auto& slab = layout.slabs.at(static_cast<std::size_t>(p.slab));
    ASSERT_EQ(slab.space, tape[i].space);
    ASSERT_EQ(p.offset % MemoryLayout::kAlignment, 0);
    ASSERT_GE(p.offset, 0);
    ASSERT_LE(p.offset + p.bytes, slab.bytes);
    for (std::size_t j = 0; j < i; ++j) {
      const auto& q = layout.places[j];
      if (q.slab != p.slab || tape[j].died <= tape[i].born || tape[i].died <= tape[j].born)
        continue;
      ASSERT_TRUE(p.offset + p.bytes <= q.offset || q.offset + q.bytes <= p.offset)
          << i << " and " << j;
    }
  }
  ASSERT_EQ(layout.escapes, escapes);
  ASSERT_EQ(layout.escaping().size(), static_cast<std::size_t>(escapes));
}

bool same_place(const MemoryLayout::Allocation& a, const MemoryLayout::Allocation& b) {
  return a.space == b.space && a.bytes == b.bytes && a.offset == b.offset && a.slab == b.slab;
}

// Checks everything that a layout promises. Returns the worst ratio of a slab to its lower bound.
double checked_ratio(std::span<const Allocation> tape) {
  const MemoryLayout layout = plan_layout(tape);
  check_layout(tape, layout);
  EXPECT_TRUE(std::ranges::equal(plan_layout(tape).places, layout.places, same_place));
  double worst = 1;
  for (const auto& slab : layout.slabs) {
    EXPECT_GE(slab.bytes, slab.lower_bound);
    EXPECT_GT(slab.lower_bound, 0);
    worst =
        std::max(worst, static_cast<double>(slab.bytes) / static_cast<double>(slab.lower_bound));
  }
  return worst;
}

// Allocations that are placed apart lie in slabs of at most so many bytes, without others; those of
// which one is dead when the next is born share bytes, and bytes that should stay unused do.
TEST_F(PlanLayout, WhatIsPlacedApart) {
  constexpr std::int64_t kMost = 1000 * 64;
  std::vector<Allocation> tape;
  const auto add = [&](std::int64_t bytes, std::int64_t lives, std::int64_t apart) {
    const auto born = static_cast<std::int64_t>(tape.size());
    tape.push_back({&space(), bytes, born, born + lives, 0, apart});
  };
  for (int i = 0; i < 5; ++i) {
    add(900 * 64, 2, kMost);  // one after another, each with the next
    add(600 * 64, 9, 0);
    add(50 * 64, 1, kMost);
  }
  tape[2].kept = tape[5].born + 1;
  const MemoryLayout layout = plan_layout(tape);
  check_layout(tape, layout);
  std::vector<char> apart(layout.slabs.size(), 2);
  for (std::size_t i = 0; i < tape.size(); ++i) {
    const auto slab = static_cast<std::size_t>(layout.places[i].slab);
    const char is_apart = tape[i].apart != 0;
    EXPECT_TRUE(apart[slab] == 2 || apart[slab] == is_apart) << i;
    apart[slab] = is_apart;
  }
  for (std::size_t s = 0; s < layout.slabs.size(); ++s)
    EXPECT_LE(layout.slabs[s].bytes, apart[s] == 1 ? kMost : std::int64_t{1} << 40);
  EXPECT_EQ(std::ranges::count(apart, 1), 1);  // no two of the large ones live at once
  EXPECT_NE(layout.places[2].offset, layout.places[5].offset);
  // Two allocations that live at once do not fit into one slab.
  std::vector<Allocation> two{{&space(), 900 * 64, 0, 5, 0, kMost},
                              {&space(), 900 * 64, 1, 5, 0, kMost}};
  EXPECT_EQ(plan_layout(two).slabs.size(), 2u);
  check_layout(two, plan_layout(two));
}

// A tape of n allocations, each of which dies some time later: each at one time with up to
// `at_once` others.
std::vector<Allocation> random_tape(std::uint32_t seed, std::span<MemorySpace* const> spaces) {
  std::mt19937 random(seed);
  const std::size_t n = random() % 120, at_once = 1 + random() % 30;
  const bool few_sizes = random() % 2 == 0;
  std::vector<Allocation> tape;
  std::vector<std::size_t> alive;
  while (tape.size() < n) {
    while (alive.size() >= at_once || (!alive.empty() && random() % 3 == 0)) {
      const std::size_t which = random() % alive.size();
      tape[alive[which]].died = static_cast<std::int64_t>(tape.size());
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(which));
    }
    const std::int64_t bytes =
        few_sizes ? std::int64_t{1000} << (random() % 3) : random() % (1u << (random() % 20));
    alive.push_back(tape.size());
    tape.push_back(
        {spaces[random() % spaces.size()], bytes, static_cast<std::int64_t>(tape.size()), kNever});
  }
  for (std::size_t i : alive) {  // what is alive at the end escapes, or is let go there
    if (random() % 2 == 0) tape[i].died = static_cast<std::int64_t>(n);
  }
  return tape;
}

TEST_F(PlanLayout, RandomTapesNeverShareBytesAndTime) {
  MemorySpace* const spaces[] = {&space(0), &space(1)};
  double worst = 1, sum = 0;
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    const auto tape = random_tape(seed, spaces);
    const double ratio = checked_ratio(tape);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  std::printf("slab / lower bound over 1000 random tapes: worst %.3f, mean %.3f\n", worst,
              sum / 1000);
  EXPECT_LT(worst, 1.5);
}

// Long tapes are packed in another order.
TEST_F(PlanLayout, LongTapesNeverShareBytesAndTime) {
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    const std::int64_t n = 5000 + random() % 1000;
    std::vector<Allocation> tape;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t life = random() % 10 == 0 ? random() % 2000 : 1 + random() % (4 << seed);
      tape.push_back(
          {&space(), static_cast<std::int64_t>(random() % 100'000), i,
           random() % 100 == 0 ? kNever : std::min(n, i + std::max<std::int64_t>(life, 1))});
    }
    const double ratio = checked_ratio(tape);
    std::printf("%d allocations: %.3f\n", static_cast<int>(n), ratio);
    EXPECT_LT(ratio, 1.3);
  }
}

// Forward layers that keep something for the backward ones, on several devices in lock step.
std::vector<Allocation> training_tape(MemorySpace* where, int layers, int devices) {
  std::vector<Allocation> tape;
  const auto born = [&](std::int64_t bytes) {
    std::vector<std::size_t> each;
    for (int d = 0; d < devices; ++d) {
      each.push_back(tape.size());
      tape.push_back({where, bytes, static_cast<std::int64_t>(tape.size()), kNever});
    }
    return each;
  };
  const auto die = [&](const std::vector<std::size_t>& each) {
    for (std::size_t i : each) tape[i].died = static_cast<std::int64_t>(tape.size());
  };
  std::vector<std::vector<std::size_t>> kept;
  auto x = born(4096);
  for (int l = 0; l < layers; ++l) {
    const auto wide = born(4 * 4096);
    const auto activated = born(4 * 4096);
    die(wide);
    const auto y = born(4096);
    kept.push_back(x);
    kept.push_back(activated);
    x = y;
  }
  auto cotangent = born(4096);
  die(x);
  for (int l = 0; l < layers; ++l) {
    const auto wide = born(4 * 4096);
    born(4096 * 16);  // the gradient of a weight: escapes
    die(kept.back());
    kept.pop_back();
    const auto next = born(4096);
    die(cotangent);
    die(wide);
    die(kept.back());
    kept.pop_back();
    cotangent = next;
  }
  die(cotangent);
  return tape;
}

TEST_F(PlanLayout, LayoutsOfTrainingStepsAreTight) {
  for (int layers : {1, 4, 24}) {
    for (int devices : {1, 8}) {
      const double ratio = checked_ratio(training_tape(&space(), layers, devices));
      std::printf("training step, %d layers on %d devices: %.3f\n", layers, devices, ratio);
      EXPECT_LE(ratio, 1.3);
    }
  }
}

TEST_F(PlanLayout, SmallLayouts) {
  EXPECT_TRUE(plan_layout({}).places.empty());
  EXPECT_TRUE(plan_layout({}).slabs.empty());
  // An allocation that dies when another is born gives it its bytes.
  const Allocation chain[] = {{&space(), 100, 0, 2}, {&space(), 100, 1, 3}, {&space(), 100, 2, 4}};
  const MemoryLayout layout = plan_layout(chain);
  EXPECT_EQ(layout.slabs[0].bytes, 256);
  EXPECT_EQ(layout.slabs[0].lower_bound, 256);
  EXPECT_EQ(layout.places[0].offset, layout.places[2].offset);
  const Allocation none[] = {{&space(), 100, 0, kNever}};
  EXPECT_TRUE(plan_layout(none).slabs.empty());
  EXPECT_THAT(plan_layout(none).escaping(), ElementsAre(0));
}

TEST_F(PlanLayout, BytesAreKeptWhereThereIsRoom) {
  // A collective's operand, then a product of the same size, while a larger allocation makes room.
  const Allocation roomy[] = {{&space(), 640, 0, 1},
                              {&space(), 100, 1, 2, 3},
                              {&space(), 100, 2, 3},
                              {&space(), 100, 3, 4}};
  const MemoryLayout kept = plan_layout(roomy);
  check_layout(roomy, kept);
  EXPECT_EQ(kept.slabs[0].bytes, 640);
  EXPECT_NE(kept.places[1].offset, kept.places[2].offset);
  EXPECT_EQ(kept.places[1].offset, kept.places[3].offset) << "until then, and no longer";
  // Beside another large allocation, the second of two that ask cannot be kept without a larger
  // slab.
  const Allocation half[] = {{&space(), 640, 0, 1},
                             {&space(), 100, 1, 2, 3},
                             {&space(), 100, 2, 3},
                             {&space(), 100, 3, 4, 5},
                             {&space(), 640, 4, 5}};
  const MemoryLayout denied = plan_layout(half);
  check_layout(half, denied);
  EXPECT_EQ(denied.slabs[0].bytes, 640);
  EXPECT_NE(denied.places[1].offset, denied.places[2].offset);
  // If the allocations that ask are the peak, the slab grows.
  const Allocation peak[] = {{&space(), 100, 0, 1, 2}, {&space(), 100, 1, 2}};
  const MemoryLayout grown = plan_layout(peak);
  check_layout(peak, grown);
  EXPECT_EQ(grown.slabs[0].bytes, 256);
  EXPECT_NE(grown.places[0].offset, grown.places[1].offset);
  // A time to keep that ends before the allocation dies has no effect.
  const Allocation early[] = {{&space(), 100, 0, 2, 1}, {&space(), 100, 1, 3}};
  check_layout(early, plan_layout(early));
}

TEST_F(PlanLayout, AllBytesAreKeptBesideALargePeak) {
  std::mt19937 random(7);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  constexpr std::int64_t kPeak = 1 << 18;
  for (const std::int64_t n : {20, 300, 5000}) {
    std::vector<Allocation> tape = {{&space(), kPeak, 0, 1}};
    for (std::int64_t i = 1; i < n; ++i) {
      const std::int64_t died = i + 1 + below(12);
      tape.push_back({&space(), 1 + below(5000), i, died, below(3) == 0 ? died + below(20) : 0});
    }
    const MemoryLayout layout = plan_layout(tape);
    EXPECT_EQ(layout.slabs[0].bytes, kPeak) << n;
    EXPECT_TRUE(std::ranges::equal(plan_layout(tape).places, layout.places, same_place)) << n;
    for (Allocation& a : tape) a.died = std::max(a.died, a.kept);
    check_layout(tape, layout);
  }
}

}  // namespace
}  // namespace shmap
