// Collectives over groups of devices that lie in several processes, each with other numbers of
// their blocks: in layouts in which one process has all blocks of a group, or all values of a row,
// and others do not (tests/CMakeLists.txt runs it also as 3 x 2, 3 x 3, 3 x 4 and 2 x 6).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "shmap/shmap.h"
#include "tests/processes/expected_blocks.h"
#include "tests/support/device_grids.h"

namespace shmap {
namespace {

// Collectives over axes or groups of a mesh, and what they give.
struct InGroups {
  Grid grid;
  Axes over;
  Groups groups;
  std::function<Array(Array)> operand;  // of the block of a device
  // What the cliques combine, by id: in groups of a line a device's block, in rows of a mesh whose
  // values are equal along the rows the value of the row.
  Blocks<float> values;
  std::function<std::size_t(std::size_t)> own;  // position -> its id
  std::function<std::vector<std::size_t>(std::size_t)>
      members;  // position -> the ids of its clique
};

void expect_in_groups(const Blocks<float>& in, const InGroups& g) {
  const auto n = static_cast<std::int64_t>(in[0].size());
  // By the members of a clique.
  std::map<std::vector<std::size_t>, std::vector<float>> sums, extremes;
  for (std::size_t p = 0; p < in.size(); ++p) {
    const std::vector<std::size_t> members = g.members(p);
    if (sums.contains(members)) continue;
    sums[members] = combined<float>(g.values, members, [](float a, float b) { return a + b; });
    extremes[members] =
        combined<float>(g.values, members, [](float a, float b) { return std::max(a, b); });
  }
  expect_blocks<float>(
      g.grid, in, Shape{n},
      [&](Array b) { return psum(g.operand(b), g.over, {.axis_index_groups = g.groups}); },
      [&](std::size_t p) { return sums.at(g.members(p)); }, sum_bound(in));
  expect_blocks<float>(
      g.grid, in, Shape{n},
      [&](Array b) { return pmax(g.operand(b), g.over, {.axis_index_groups = g.groups}); },
      [&](std::size_t p) { return extremes.at(g.members(p)); }, sum_bound(in));
  expect_blocks<float>(
      g.grid, in, Shape{n},
      [&](Array b) {
        return psum_scatter(g.operand(b), g.over, {.tiled = true, .axis_index_groups = g.groups});
      },
      [&](std::size_t p) {
        const std::vector<std::size_t> members = g.members(p);
        const std::vector<float>& sum = sums.at(members);
        const auto piece = n / static_cast<std::int64_t>(members.size());
        const auto rank = std::find(members.begin(), members.end(), g.own(p)) - members.begin();
        return std::vector<float>(sum.begin() + rank * piece, sum.begin() + (rank + 1) * piece);
      },
      sum_bound(in));
  expect_blocks<float>(
      g.grid, in, Shape{n},
      [&](Array b) {
        return all_gather(g.operand(b), g.over, {.tiled = true, .axis_index_groups = g.groups});
      },
      [&](std::size_t p) {
        std::vector<float> all;
        for (const std::size_t m : g.members(p))
          all.insert(all.end(), g.values[m].begin(), g.values[m].end());
        return all;
      },
      sum_bound(in));
}

Grid grid_of_devices(const std::vector<std::size_t>& ids, std::int64_t rows, std::int64_t columns) {
  std::vector<Device> placed;
  for (const std::size_t id : ids) placed.push_back(devices()[id]);
  return {Mesh(NdArray<Device>(placed, Shape{rows, columns}), axes("i", "j")),
          {rows, columns},
          axes("i", "j")};
}

// The first two devices are a group, and device k of the others is one with the device half of the
// others further: one process may have a group alone, while each of the others shares its groups.
TEST(ProcessGroups, OneProcessHasAGroupAlone) {
  const auto n = static_cast<std::size_t>(device_count());
  if (n % 2 != 0) GTEST_SKIP() << "takes an even number of devices";
  Groups groups{{0, 1}};
  std::vector<std::size_t> in_rows{0, 1}, partner(n);
  partner[0] = 1;
  partner[1] = 0;
  for (std::size_t a = 2, b = n / 2 + 1; b < n; ++a, ++b) {
    groups.push_back({static_cast<int>(a), static_cast<int>(b)});
    in_rows.insert(in_rows.end(), {a, b});
    partner[a] = b;
    partner[b] = a;
  }
  for (const std::int64_t count : {20, 75'000}) {  // 80 bytes, 300 KB
    SCOPED_TRACE(count);
    const auto in = some_blocks<float>(count);
    const auto block = [](Array b) { return b; };
    const auto itself = [](std::size_t p) { return p; };
    expect_in_groups(
        in, {line(), "i", groups, block, in, itself, [&](std::size_t p) {
               return std::vector<std::size_t>{std::min(p, partner[p]), std::max(p, partner[p])};
             }});
    // The same groups as the rows of a mesh.
    const Grid rows = grid_of_devices(in_rows, static_cast<std::int64_t>(n / 2), 2);
    expect_in_groups(
        in, {rows, "j", {}, block, in, itself, [&](std::size_t p) { return rows.clique(p, {1}); }});
  }
}

// `in` as it is summed over the rows of the grid: equal values along each row.
InGroups with_equal_rows(const Grid& grid, const Blocks<float>& in, const Groups& groups) {
  const auto columns = static_cast<std::size_t>(grid.sizes[1]);
  Blocks<float> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(grid.sizes[0]); ++i)
    values.push_back(
        combined<float>(in, grid.clique(i * columns, {1}), [](float a, float b) { return a + b; }));
  const auto row = [columns](std::size_t p) { return p / columns; };
  return {grid,
          "i",
          groups,
          [](Array b) { return psum(b, "j"); },
          values,
          row,
          [groups, row, rows = values.size()](std::size_t p) {
            std::vector<std::size_t> members;
            for (const auto& group : groups) {
              if (std::find(group.begin(), group.end(), static_cast<int>(row(p))) != group.end())
                members.assign(group.begin(), group.end());
            }
            for (std::size_t i = 0; groups.empty() && i < rows; ++i) members.push_back(i);
            return members;
          }};
}

// Of four processes two have both values of a group, in different columns, and the others one each.
TEST(ProcessGroups, TwoProcessesHaveAllValuesOfAGroup) {
  if (device_count() != 8) GTEST_SKIP() << "takes eight devices";
  const Grid grid = grid_of_devices({0, 2, 3, 1, 4, 5, 6, 7}, 4, 2);
  for (const std::int64_t count : {20, 75'000}) {
    SCOPED_TRACE(count);
    const auto in = some_blocks<float>(count);
    expect_in_groups(in, with_equal_rows(grid, in, {{0, 1}, {2, 3}}));
  }
}

// Of three processes one has the values of all rows, and the others, which lack one each, get it
// from each other.
TEST(ProcessGroups, OneOfThreeProcessesHasAllValues) {
  if (device_count() != 9) GTEST_SKIP() << "takes nine devices";
  const Grid grid = grid_of_devices({0, 6, 3, 4, 5, 1, 7, 2, 8}, 3, 3);
  for (const std::int64_t count : {21, 75'000}) {
    SCOPED_TRACE(count);
    const auto in = some_blocks<float>(count);
    expect_in_groups(in, with_equal_rows(grid, in, {}));
  }
}

// Groups that lie differently over the processes: in one exchange a process reads the blocks of one
// group in the memory of another process, and copies those of another group.
TEST(ProcessGroups, OfOneProcessSomeBlocksAreReadInPlaceAndOthersCopied) {
  if (device_count() != 12) GTEST_SKIP() << "takes twelve devices";
  const Groups groups = process_count() == 2 ? Groups{{0, 1, 6, 7}, {2, 8, 9, 10}, {3, 4, 5, 11}}
                                             : Groups{{0, 1, 4, 8}, {2, 3, 5, 6}, {7, 9, 10, 11}};
  for (const std::int64_t count : {40'000, 65'536}) {
    SCOPED_TRACE(count);
    const auto in = some_blocks<float>(count);
    expect_in_groups(
        in, {line(), "i", groups, [](Array b) { return b; }, in, [](std::size_t p) { return p; },
             [&](std::size_t p) {
               for (const std::vector<int>& group : groups) {
                 if (std::find(group.begin(), group.end(), static_cast<int>(p)) != group.end())
                   return std::vector<std::size_t>(group.begin(), group.end());
               }
               return std::vector<std::size_t>();
             }});
  }
}

}  // namespace
}  // namespace shmap
