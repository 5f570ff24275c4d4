// shmap-test: devices
// Checks which values are stored once, which are moved, and what the counters count.
#include <gtest/gtest.h>

#include <set>

#include "tests/collectives/blocks.h"

namespace shmap::test {
namespace {

Mesh mesh8() { return make_mesh({8}, "i"); }
Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }
std::vector<std::pair<int, int>> ring(int n) {
  std::vector<std::pair<int, int>> perm;
  for (int r = 0; r < n; ++r) perm.emplace_back(r, (r + 1) % n);
  return perm;
}

// Runs body on blocks f32[4] of eight devices.
template <class F>
void on_blocks(const Mesh& mesh, F body) {
  const P split(Axes(mesh.axis_names()));
  shard_map(
      [&](Array x) {
        body(x);
        return x;
      },
      mesh, split, split)(device_put(arange(32), NamedSharding(mesh, split)));
}

int spaces(const Array& x) {
  std::set<const MemorySpace*> seen;
  for (std::uint32_t d : own_positions(x)) seen.insert(space_of(x, d));
  return static_cast<int>(seen.size());
}
// Blocks of devices share memory exactly if the devices are in one memory space and same(a, b).
template <class Same>
void expect_places(const Array& x, Same same, const char* what) {
  for (std::uint32_t a : own_positions(x)) {
    // An entry is memory of its device's own space.
    EXPECT_EQ(&stored_of(x)->blocks()[entry_of(x, a)].buffer->space(), space_of(x, a)) << what;
    for (std::uint32_t b : own_positions(x)) {
      if (b >= a) break;
      const bool one = same(a, b) && space_of(x, a) == space_of(x, b);
      EXPECT_EQ(place(x, a) == place(x, b), one) << what << ", devices " << a << " and " << b;
    }
  }
}
const auto kAll = [](std::uint32_t, std::uint32_t) { return true; };
const auto kNone = [](std::uint32_t, std::uint32_t) { return false; };
// Positions on the 4 × 2 mesh.
const auto kSameI = [](std::uint32_t a, std::uint32_t b) { return a / 2 == b / 2; };
const auto kSameJ = [](std::uint32_t a, std::uint32_t b) { return a % 2 == b % 2; };

TEST(CollectiveStorage, OneResultAMemorySpace) {
  on_blocks(mesh42(), [](const Array& x) {
    expect_places(psum(x, {"i", "j"}), kAll, "psum");
    expect_places(pmax(x, "i"), kSameJ, "pmax over i");
    expect_places(pmin(x, "j"), kSameI, "pmin over j");
    expect_places(all_gather(x, "i"), kSameJ, "all_gather");
    expect_places(all_gather_invariant(x, {"j", "i"}), kAll, "all_gather_invariant");
    expect_places(psum_scatter(x, "j", {.tiled = true}), kNone, "psum_scatter");
    expect_places(all_to_all(x, "j", 0, 0, {.tiled = true}), kNone, "all_to_all");
    expect_places(axis_index("i"), kSameI, "axis_index");
    expect_places(broadcast_from(x, "j", 1), kSameI, "broadcast_from");
    const Array halves = psum(x, "i", {.axis_index_groups = {{0, 1}, {2, 3}}});
    expect_places(
        halves, [](std::uint32_t a, std::uint32_t b) { return a / 4 == b / 4 && kSameJ(a, b); },
        "grouped psum");
  });
}

// A value that is the same on all cliques by its type is computed for one clique and shared.
TEST(CollectiveStorage, EqualCliquesComputeOnce) {
  on_blocks(mesh42(), [](const Array& x) {
    const Array by_i = psum(x, "j");  // f32[4]{i}: the same on both cliques over i
    ASSERT_EQ(to_string(by_i.type()), "f32[4]{i}");
    expect_places(psum(by_i, "i"), kAll, "psum");
    expect_places(all_gather(by_i, "i"), kAll, "all_gather");
    expect_places(psum_scatter(by_i, "i", {.tiled = true}), kSameI, "psum_scatter");
    expect_places(all_to_all(by_i, "i", 0, 0, {.tiled = true}), kSameI, "all_to_all");
    expect_places(ppermute(by_i, "i", ring(4)), kSameI, "ppermute");
    const auto before = counters();
    psum(by_i, "i");
    EXPECT_EQ(counters().allocations - before.allocations, spaces(x));
  });
}

TEST(CollectiveStorage, ACastAndAScatterOfWholeRunsMoveNothing) {
  on_blocks(mesh42(), [](const Array& x) {
    const Array sum = psum(x, "i");
    const auto before = counters();
    const Array cast = pbroadcast(sum, "i");
    const Array parts = pscatter(sum, "i", {.tiled = true});
    EXPECT_EQ(counters().allocations, before.allocations);
    EXPECT_EQ(counters().collectives, before.collectives);
    EXPECT_EQ(counters().collective_bytes, before.collective_bytes);
    for (std::uint32_t d : own_positions(x)) {
      EXPECT_EQ(place(cast, d), place(sum, d));
      EXPECT_EQ(place(parts, d).first, place(sum, d).first);
      EXPECT_EQ(place(parts, d).second, place(sum, d).second + 4 * (d / 2));
    }
  });
}

// Columns are not contiguous, so that each device copies its own.
TEST(CollectiveStorage, AScatterOfColumnsCopies) {
  on_blocks(mesh42(), [](const Array& x) {
    const Array sum = reshape(psum(x, {"i", "j"}), {2, 2});
    const auto before = counters();
    const Array column = pscatter(sum, "j", {.scatter_dimension = 1, .tiled = true});
    EXPECT_EQ(counters().copies - before.copies, spaces(x) == 1 ? 2 : spaces(x) == 2 ? 4 : 8);
    EXPECT_EQ(counters().collectives, before.collectives);
    expect_places(column, kSameJ, "pscatter");
    EXPECT_EQ(block_values<float>(column, 3),
              std::vector<float>({sum[{0, 1}].item<float>(), sum[{1, 1}].item<float>()}));
  });
}

TEST(CollectiveStorage, APermutationInsideAMemorySpaceMovesEntries) {
  on_blocks(mesh8(), [](const Array& x) {
    const auto before = counters();
    const Array y = ppermute(x, "i", ring(8));
    const auto after = counters();
    std::int64_t moved = 0;
    for (std::uint32_t d = 0; d < 8; ++d) {
      const std::uint32_t from = (d + 7) % 8;
      const bool here = space_of(x, d) == space_of(x, from);
      EXPECT_EQ(place(y, d) == place(x, from), here) << d;
      if (!here) moved += 16;
    }
    EXPECT_EQ(moved, spaces(x) == 1 ? 0 : spaces(x) == 2 ? 32 : 128);
    EXPECT_EQ(after.collectives - before.collectives, 1);
    EXPECT_EQ(after.collective_bytes - before.collective_bytes, moved);
    EXPECT_EQ(after.copied_bytes, before.copied_bytes);
    EXPECT_EQ(after.allocations - before.allocations, moved / 16);
  });
}

TEST(CollectiveStorage, RanksThatGetNothingShareZeros) {
  on_blocks(mesh8(), [](const Array& x) {
    const auto before = counters();
    const Array y = ppermute(x, "i", {{3, 3}});
    EXPECT_EQ(counters().allocations - before.allocations, spaces(x) == 8 ? 7 : spaces(x));
    expect_places(
        y, [](std::uint32_t a, std::uint32_t b) { return (a == 3) == (b == 3); }, "zeros");
    EXPECT_EQ(block_values<float>(y, 0), std::vector<float>(4));
    EXPECT_EQ(place(y, 3), place(x, 3));
  });
}

TEST(CollectiveStorage, ABroadcastSharesItsSource) {
  on_blocks(mesh8(), [](const Array& x) {
    const auto before = counters();
    const Array y = broadcast_from(x, "i", 5);
    for (std::uint32_t d = 0; d < 8; ++d)
      EXPECT_EQ(place(y, d) == place(x, 5), space_of(x, d) == space_of(x, 5)) << d;
    EXPECT_EQ(counters().collective_bytes - before.collective_bytes, 16 * (spaces(x) - 1));
    EXPECT_EQ(counters().collectives - before.collectives, 1);
  });
}

TEST(CollectiveStorage, CountsAreOfOperandBytes) {
  on_blocks(mesh42(), [](const Array& x) {  // 16 bytes on each of 8 devices
    const auto cost = [](const auto& call) {
      const auto before = counters();
      call();
      const auto after = counters();
      return std::pair(after.collectives - before.collectives,
                       after.collective_bytes - before.collective_bytes);
    };
    using Cost = std::pair<std::int64_t, std::int64_t>;
    EXPECT_EQ(cost([&] { psum(x, "i"); }), Cost(1, 128));
    EXPECT_EQ(cost([&] { pmean(x, {"i", "j"}); }), Cost(1, 128));
    EXPECT_EQ(cost([&] { pmax(x, "j"); }), Cost(1, 128));
    EXPECT_EQ(cost([&] { all_gather(x, "i"); }), Cost(1, 128));
    EXPECT_EQ(cost([&] { psum_scatter(x, "i"); }), Cost(1, 128));
    EXPECT_EQ(cost([&] { all_to_all(x, "i", 0, 0); }), Cost(1, 128));
    EXPECT_EQ(cost([&] { axis_index("i"); }), Cost(0, 0));
    EXPECT_EQ(cost([&] { psum(1, "i"); }), Cost(0, 0));
    EXPECT_EQ(cost([&] { psum(std::tuple(x, x), "i"); }), Cost(2, 256));
    // An operand that does not vary is cast, which counts nothing, and is summed all the same.
    const Array sum = psum(x, "i");
    EXPECT_EQ(cost([&] { psum(sum, "i"); }), Cost(1, 128));
  });
}

TEST(CollectiveStorage, OverAnAxisOfOneDeviceNothingMoves) {
  const Mesh mesh = make_mesh({8, 1}, {"i", "j"});
  on_blocks(mesh, [](const Array& x) {
    const auto before = counters();
    for (const Array& y :
         {psum(x, "j"), pmax(x, "j"), all_gather(x, "j"), psum_scatter(x, "j", {.tiled = true}),
          all_to_all(x, "j", 0, 0, {.tiled = true}), ppermute(x, "j", {{0, 0}}),
          broadcast_from(x, "j", 0)}) {
      for (std::uint32_t d : own_positions(x)) EXPECT_EQ(place(y, d), place(x, d));
    }
    EXPECT_EQ(counters().collectives, before.collectives);
    EXPECT_EQ(counters().collective_bytes, before.collective_bytes);
    EXPECT_EQ(counters().allocations, before.allocations);
  });
}

// Outside of a body the partial results of a reduction of a split array are combined by the same
// sums.
TEST(CollectiveStorage, ReductionsOfSplitArraysCombineOnce) {
  const Array x = device_put(arange(32), NamedSharding(mesh42(), P(axes("i", "j"))));
  const auto before = counters();
  const Array total = sum(x);
  EXPECT_EQ(counters().collectives - before.collectives, 1);
  EXPECT_EQ(counters().collective_bytes - before.collective_bytes, 8 * 4);
  expect_places(total, kAll, "sum");
  EXPECT_EQ(total.item<float>(), 496.f);
  EXPECT_EQ(max(x).item<float>(), 31.f);
  EXPECT_EQ(min(x + 1.f).item<float>(), 1.f);
  EXPECT_EQ(counters().collectives - before.collectives, 3);
}

// A shared block is never written in place while others may read it.
TEST(CollectiveStorage, SharedResultsAreNotOverwritten) {
  on_blocks(mesh8(), [](Array x) {
    Array moved = ppermute(x, "i", ring(8));
    const std::uint32_t first = own_positions(x).front();
    const std::vector<float> before = block_values<float>(x, first);
    moved += 100.f;
    EXPECT_EQ(block_values<float>(x, first), before);
    EXPECT_EQ(block_values<float>(moved, first + 1)[0], before[0] + 100.f);
    Array sum = psum(x, "i");
    Array varying = pbroadcast(sum, "i");
    varying += axis_index("i").dtype() == i32 ? 1.f : 0.f;
    const std::uint32_t last = own_positions(x).back();
    EXPECT_EQ(block_values<float>(varying, last)[0], block_values<float>(sum, last)[0] + 1.f);
    // The type decides what is computed once: varying + its own rank has eight results.
    Array own = pbroadcast(sum, "i") + astype(axis_index("i"), f32);
    for (std::uint32_t d : own_positions(own))
      EXPECT_EQ(block_values<float>(own, d)[0],
                block_values<float>(sum, d)[0] + static_cast<float>(d));
  });
}

}  // namespace
}  // namespace shmap::test
