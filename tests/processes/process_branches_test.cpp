// Collectives in branches and loops that only some devices take, in layouts in which each process
// has devices of one way or of all (tests/CMakeLists.txt runs it as 2 x 4, 4 x 2, 3 x 2 and 3 x 4,
// in the last also with a memory space for each device).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/device_grids.h"

namespace shmap {
namespace {

using Body = std::function<Array(Array)>;

Mesh rows_and_columns() { return make_mesh({2, device_count() / 2}, axes("i", "j")); }

// A row of blocks for each row of devices.
Array in_rows(const Mesh& mesh, std::int64_t each) {
  const std::int64_t columns = device_count() / 2;
  return device_put(reshape(arange(2 * columns * each), {2, columns * each}),
                    NamedSharding(mesh, P("i", "j")));
}

Array varying(const Array& y) {
  std::vector<std::string> missing;
  for (const char* axis : {"i", "j"}) {
    const std::vector<std::string> has = y.vma();
    if (std::find(has.begin(), has.end(), axis) == has.end()) missing.emplace_back(axis);
  }
  return missing.empty() ? y : pbroadcast(y, Axes(missing));
}

// What a device of either row gets where the rows take two branches must be what it gets where all
// devices run the function of its row, eagerly and under jit. before: what all devices do first.
void expect_branches(
    const Body& of_first, const Body& of_second, std::int64_t each,
    const Body& before = [](Array b) { return b; }) {
  const Mesh mesh = rows_and_columns();
  const Array x = in_rows(mesh, each);
  const auto mapped = [&](const Body& body) {
    return shard_map([=](Array b) { return varying(body(before(b))); }, mesh, {P("i", "j")},
                     P("i", "j"));
  };
  const std::vector<Shard> first = mapped(of_first)(x).addressable_shards(),
                           second = mapped(of_second)(x).addressable_shards();
  const auto branches = mapped([=](Array b) {
    return cond(
        axis_index("i") == 0, [=](Array c) { return varying(of_first(c)); },
        [=](Array c) { return varying(of_second(c)); }, b);
  });
  const auto fast = jit(branches);
  for (int call = 0; call < 6; ++call) {
    const std::vector<Shard> got = (call < 2 ? branches(x) : fast(x)).addressable_shards();
    for (std::size_t k = 0; k < got.size(); ++k) {
      const Shard& want = got[k].index[0].start == 0 ? first[k] : second[k];
      EXPECT_EQ(got[k].data.to_vector<float>(), want.data.to_vector<float>())
          << "call " << call << ", row " << got[k].index[0].start << ", shard " << k;
    }
  }
}

Body after_scaling(const Body& verb) {
  return [=](Array b) { return verb(b * 10.f); };
}

// The rows take their branches one after another in a process that has devices of both.
TEST(ProcessBranches, EachRowMeetsInItsOwnBranch) {
  const int columns = static_cast<int>(device_count() / 2);
  const std::vector<Body> verbs = {
      [](Array b) { return psum(b, "j"); },
      [](Array b) { return psum_scatter(b, "j", {.scatter_dimension = 1, .tiled = true}); },
      [](Array b) { return all_gather(b, "j", {.axis = 1, .tiled = true}); },
      [](Array b) { return all_to_all(b, "j", 1, 1, {.tiled = true}); },
      [=](Array b) {
        return ppermute(b, "j", {{0, columns - 1}});
      },
      [](Array b) { return broadcast_from(b, "j", 1); }};
  for (std::size_t v = 0; v < verbs.size(); ++v) {
    for (const std::int64_t each : {1, 3000}) {
      SCOPED_TRACE("verb " + std::to_string(v) + ", " + std::to_string(each));
      expect_branches(after_scaling(verbs[v]), verbs[v], each * columns);
    }
  }
}

TEST(ProcessBranches, TheBranchesHaveDifferentNumbersOfCollectives) {
  const Body once = [](Array b) { return psum(b, "j"); };
  const Body twice = [](Array b) { return psum(pmax(b, "j") + b, "j"); };
  expect_branches(once, twice, 5);
  expect_branches(twice, once, 5);
}

TEST(ProcessBranches, Groups) {
  if (device_count() % 4 != 0) GTEST_SKIP() << "takes an even number of columns";
  Groups groups(2);
  for (int c = 0; c < device_count() / 2; ++c) groups[c % 2].push_back(c);
  const Body sum = [=](Array b) { return psum(b, "j", {.axis_index_groups = groups}); };
  expect_branches(after_scaling(sum), sum, 7);
}

// Values that do not vary over the rows are computed and read once for all devices of a process, of
// which those of one row alone take part in the collective.
TEST(ProcessBranches, WhatDoesNotVaryOverTheRows) {
  const Body over_rows = [](Array b) { return psum(b, "i"); };
  const Body sum = [](Array b) { return psum(b, "j"); };
  expect_branches(after_scaling(sum), sum, 7, over_rows);
  // The second condition is the same for all devices.
  const Body decided = [](Array b) {
    const Array all = psum(b, "j");
    return cond(
        max(all) > 100.f, [](Array a) { return psum(a * 2.f, "j"); },
        [](Array a) { return psum(a, "j"); }, pbroadcast(all, "j"));
  };
  expect_branches(after_scaling(decided), decided, 2, over_rows);
}

TEST(ProcessBranches, ALoopOfMoreTripsInOneRow) {
  const Mesh mesh = rows_and_columns();
  const std::int64_t columns = device_count() / 2;
  const Array x = in_rows(mesh, 1);
  const auto f = shard_map(
      [](Array b) {
        return while_loop([](auto c) { return c.first < 2 + axis_index("i"); },
                          [](auto c) {
                            return std::pair{c.first + 1, psum(c.second, "j") + c.second};
                          },
                          std::pair{pbroadcast(Array(0), "i"), b})
            .second;
      },
      mesh, {P("i", "j")}, P("i", "j"));
  const auto fast = jit(f);
  for (int call = 0; call < 6; ++call) {
    for (const Shard& shard : (call < 2 ? f(x) : fast(x)).addressable_shards()) {
      const std::int64_t row = shard.index[0].start;
      std::vector<float> values;
      for (std::int64_t c = 0; c < columns; ++c)
        values.push_back(static_cast<float>(row * columns + c));
      for (std::int64_t trip = 0; trip < 2 + row; ++trip) {
        float sum = 0;
        for (const float v : values) sum += v;
        for (float& v : values) v += sum;
      }
      EXPECT_EQ(shard.data.to_vector<float>()[0],
                values[static_cast<std::size_t>(shard.index[1].start)])
          << "call " << call << ", row " << row;
    }
  }
}

// Two rows, whose devices meet over "i" in different processes. A function under jit is captured
// where all devices call it, and called where the devices of one column alone do, and the other way
// around.
TEST(ProcessBranches, CapturedWhereAllDevicesAndLaunchedWhereSomeCallIt) {
  const std::int64_t columns = device_count() / 2;
  const Mesh mesh = make_mesh({2, columns}, axes("i", "j"));
  const Array x =
      device_put(reshape(arange(device_count()), {2, columns}), NamedSharding(mesh, P("i", "j")));
  for (const bool first_in_branch : {false, true}) {
    SCOPED_TRACE(first_in_branch);
    const auto sum = jit([](Array b) { return psum(b * 10.f, "i"); });
    const auto in_branch = [&](Array b) {
      return cond(
          axis_index("j") == 0, [&](Array c) { return sum(c); },
          [](Array c) { return psum(c, "i"); }, b);
    };
    const auto f = shard_map(
        [&](Array b) {
          Array y = first_in_branch ? in_branch(b) : sum(b);
          for (int k = 0; k < 3; ++k) y = y + 100.f * in_branch(b) + 10000.f * sum(b);
          return y;
        },
        mesh, {P("i", "j")}, P(none, "j"));
    for (int call = 0; call < 3; ++call) {
      for (const Shard& shard : f(x).addressable_shards()) {
        const std::int64_t column = shard.index[1].start;
        const auto both = static_cast<float>(2 * column + columns);
        const float branch = column == 0 ? 10 * both : both;
        const float want = (first_in_branch ? branch : 10 * both) + 300 * branch + 300000 * both;
        EXPECT_EQ(shard.data.to_vector<float>(), std::vector<float>{want})
            << "call " << call << ", column " << column;
      }
    }
  }
}

}  // namespace
}  // namespace shmap
