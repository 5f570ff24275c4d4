// Collectives on two to eight devices, of one process or of several (tests/CMakeLists.txt runs it
// as 1 x 8, 2 x 4, 4 x 2 and 8 x 1, on GPUs also as 2 x 1, 2 x 2 and 4 x 1, and the cases of
// ProcessGroups as 3 x 2 and 3 x 3): every layout has to give the bits that plain host code gives;
// sums of floats on GPUs are NCCL's, within the bound of any order of additions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "core/processes/processes.h"
#include "shmap/shmap.h"
#include "tests/support/device_grids.h"

namespace shmap {
namespace {

template <class T>
using Blocks = std::vector<std::vector<T>>;  // by mesh position, row-major

bool on_gpus() { return devices().front().kind() == DeviceKind::cuda; }

// Values whose sums depend on the order of additions.
template <class T>
Blocks<T> some_blocks(std::int64_t n) {
  Blocks<T> blocks(static_cast<std::size_t>(device_count()));
  std::uint32_t state = 12345;
  for (auto& block : blocks) {
    for (std::int64_t i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      const auto small = static_cast<int>(state >> 8 & 0xffff) - 0x8000;
      if constexpr (std::is_integral_v<T>) {
        block.push_back(static_cast<T>(small));
      } else {
        block.push_back(T(static_cast<float>(small) * 1.0001e-3f));
      }
    }
  }
  return blocks;
}

// Sums floats in the tree of the library: over the ranks in mesh order.
template <class T>
T tree(std::vector<T> v, const std::function<T(T, T)>& op) {
  const std::size_t p = std::bit_floor(v.size());
  for (std::size_t i = p; i < v.size(); ++i) v[i - p] = op(v[i - p], v[i]);
  for (std::size_t d = 1; d < p; d *= 2)
    for (std::size_t i = 0; i + d < p; i += 2 * d) v[i] = op(v[i], v[i + d]);
  return v[0];
}

// The largest error of a sum of floats over all devices on GPUs: each addition of magnitudes
// rounds.
template <class T>
double sum_bound(const Blocks<T>& in) {
  double sum = 0;
  for (const auto& block : in) {
    double most = 0;
    for (const T v : block) most = std::max(most, std::abs(static_cast<double>(v)));
    sum += most;
  }
  // (bfloat16 has 7 bits behind the point, and no numeric_limits.)
  const double epsilon =
      sizeof(T) == 2 ? 0x1p-7 : static_cast<double>(std::numeric_limits<T>::epsilon());
  return sum * static_cast<double>(in.size()) * epsilon;
}

// Compares the results of f on blocks of `shape`, for the devices of this process, with `wanted`:
// eagerly, and under jit until it is replayed. `bound`: the largest error on GPUs.
template <class T, class F>
void expect_blocks(const Grid& grid, const Blocks<T>& in, Shape shape, F f,
                   const std::function<std::vector<T>(std::size_t)>& wanted, double bound = 0) {
  std::vector<T> flat;
  for (const auto& block : in) flat.insert(flat.end(), block.begin(), block.end());
  Shape whole = shape;
  whole[0] *= device_count();
  Shape global;
  for (std::size_t d = 0; d < shape.size(); ++d) global.push_back(d == 0 ? whole[0] : shape[d]);
  const Array x = device_put(array<T>(flat, global), NamedSharding(grid.mesh, P(grid.all)));
  const auto body = [&](Array b) {
    Array y = f(b);
    std::vector<std::string> missing;
    for (const std::string& name : grid.all) {
      const std::vector<std::string> has = y.vma();
      if (std::find(has.begin(), has.end(), name) == has.end()) missing.push_back(name);
    }
    return missing.empty() ? y : pbroadcast(y, Axes(missing));
  };
  const auto mapped = shard_map(body, grid.mesh, {P(grid.all)}, P(grid.all));
  const auto fast = jit(mapped);
  for (int round = 0; round < 5; ++round) {
    const Array y = round == 0 ? mapped(x) : fast(x);
    for (const Shard& shard : y.addressable_shards()) {
      const auto& placed = grid.mesh.devices().values();
      const auto position = static_cast<std::size_t>(
          std::find(placed.begin(), placed.end(), shard.device) - placed.begin());
      const std::vector<T> got = shard.data.template to_vector<T>(), want = wanted(position);
      ASSERT_EQ(got.size(), want.size());
      if (bound > 0 && on_gpus()) {
        for (std::size_t e = 0; e < got.size(); ++e)
          ASSERT_NEAR(static_cast<double>(got[e]), static_cast<double>(want[e]), bound)
              << "round " << round << ", position " << position;
        continue;
      }
      ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(T)), 0)
          << "round " << round << ", position " << position;
    }
  }
}

template <class T>
std::vector<T> combined(const Blocks<T>& in, std::vector<std::size_t> members,
                        const std::function<T(T, T)>& op) {
  std::sort(members.begin(), members.end());  // mesh order
  std::vector<T> out(in[0].size());
  for (std::size_t e = 0; e < out.size(); ++e) {
    std::vector<T> v;
    for (std::size_t m : members) v.push_back(in[m][e]);
    out[e] = tree<T>(v, op);
  }
  return out;
}

TEST(ProcessCollectives, DevicesAreTheUnion) {
  const std::vector<Device> all = devices();
  const auto n = static_cast<int>(all.size());
  EXPECT_TRUE(n == 8 || (on_gpus() && (n == 2 || n == 4))) << n;
  EXPECT_EQ(local_devices().size() * static_cast<std::size_t>(process_count()), all.size());
  const int each = n / process_count();
  for (int id = 0; id < n; ++id) {
    EXPECT_EQ(all[static_cast<std::size_t>(id)].id(), id);
    EXPECT_EQ(all[static_cast<std::size_t>(id)].process_index(), id / each);
  }
  for (const Device& d : local_devices()) EXPECT_EQ(d.process_index(), process_index());
}

TEST(ProcessCollectives, SumsAreTheTreeOfMeshOrder) {
  for (const Over& over : everywhere()) {
    for (const std::int64_t n : {7, 9001}) {
      SCOPED_TRACE(over.text + ", " + std::to_string(n));
      const auto in = some_blocks<float>(n);
      expect_blocks<float>(
          over.grid, in, Shape{n}, [&](Array b) { return psum(b, over.axes); },
          [&](std::size_t p) {
            return combined<float>(in, over.grid.clique(p, over.indices),
                                   [](float a, float b) { return a + b; });
          },
          sum_bound(in));
    }
  }
}

TEST(ProcessCollectives, IntegersAndExtremes) {
  const auto in = some_blocks<std::int32_t>(100);
  for (const Over& over : everywhere()) {
    SCOPED_TRACE(over.text);
    expect_blocks<std::int32_t>(
        over.grid, in, Shape{10, 10}, [&](Array b) { return pmax(b, over.axes); },
        [&](std::size_t p) {
          return combined<std::int32_t>(
              in, over.grid.clique(p, over.indices),
              [](std::int32_t a, std::int32_t b) { return a > b ? a : b; });
        });
  }
}

TEST(ProcessCollectives, HalvesAreAddedInSingle) {
  const auto in = some_blocks<bfloat16>(50);
  for (const Over& over : everywhere()) {
    SCOPED_TRACE(over.text);
    Blocks<float> single;
    for (const auto& block : in) single.emplace_back(block.begin(), block.end());
    expect_blocks<bfloat16>(
        over.grid, in, Shape{50}, [&](Array b) { return psum(b, over.axes); },
        [&](std::size_t p) {
          const std::vector<float> sum = combined<float>(single, over.grid.clique(p, over.indices),
                                                         [](float a, float b) { return a + b; });
          return std::vector<bfloat16>(sum.begin(), sum.end());
        },
        sum_bound(in));
  }
}

TEST(ProcessCollectives, Gathers) {
  const auto in = some_blocks<float>(6);
  for (const Over& over : everywhere()) {
    for (const int dim : {0, 1}) {
      SCOPED_TRACE(over.text + ", dim " + std::to_string(dim));
      const auto wanted = [&](std::size_t p) {
        const auto members = over.grid.clique(p, over.indices);
        std::vector<float> out;
        if (dim == 0) {
          for (std::size_t m : members) out.insert(out.end(), in[m].begin(), in[m].end());
        } else {
          for (int row = 0; row < 2; ++row)
            for (std::size_t m : members)
              out.insert(out.end(), in[m].begin() + row * 3, in[m].begin() + row * 3 + 3);
        }
        return out;
      };
      expect_blocks<float>(
          over.grid, in, Shape{2, 3},
          [&](Array b) { return all_gather(b, over.axes, {.axis = dim, .tiled = true}); }, wanted);
      expect_blocks<float>(
          over.grid, in, Shape{2, 3},
          [&](Array b) { return all_gather_invariant(b, over.axes, {.axis = dim, .tiled = true}); },
          wanted);
    }
  }
}

TEST(ProcessCollectives, ScatteredSums) {
  for (const Over& over : everywhere()) {
    for (const int dim : {0, 1}) {
      SCOPED_TRACE(over.text + ", dim " + std::to_string(dim));
      const auto in = some_blocks<float>(16 * 8);
      expect_blocks<float>(
          over.grid, in, Shape{16, 8},
          [&](Array b) {
            return psum_scatter(b, over.axes, {.scatter_dimension = dim, .tiled = true});
          },
          [&](std::size_t p) {
            const auto members = over.grid.clique(p, over.indices);
            const std::vector<float> sum =
                combined<float>(in, members, [](float a, float b) { return a + b; });
            const auto rank = static_cast<std::size_t>(
                std::find(members.begin(), members.end(), p) - members.begin());
            const std::size_t rows = dim == 0 ? 16 / members.size() : 16,
                              columns = dim == 0 ? 8 : 8 / members.size();
            std::vector<float> out;
            for (std::size_t r = 0; r < rows; ++r)
              for (std::size_t c = 0; c < columns; ++c)
                out.push_back(sum[(dim == 0 ? rank * rows + r : r) * 8 +
                                  (dim == 0 ? c : rank * columns + c)]);
            return out;
          },
          sum_bound(in));
    }
  }
}

TEST(ProcessCollectives, Exchanges) {
  const auto in = some_blocks<float>(16 * 3);
  for (const Over& over : everywhere()) {
    for (const int dim : {0, 1}) {  // along which the pieces are joined
      SCOPED_TRACE(over.text + ", dim " + std::to_string(dim));
      expect_blocks<float>(
          over.grid, in, Shape{16, 3},
          [&](Array b) { return all_to_all(b, over.axes, 0, dim, {.tiled = true}); },
          [&](std::size_t p) {
            const auto members = over.grid.clique(p, over.indices);
            const auto rank = static_cast<std::size_t>(
                std::find(members.begin(), members.end(), p) - members.begin());
            const std::size_t rows = 16 / members.size();
            std::vector<float> out;
            const auto add_row = [&](std::size_t m, std::size_t r) {
              for (std::size_t c = 0; c < 3; ++c) out.push_back(in[m][(rank * rows + r) * 3 + c]);
            };
            if (dim == 0) {
              for (std::size_t m : members)
                for (std::size_t r = 0; r < rows; ++r) add_row(m, r);
            } else {
              for (std::size_t r = 0; r < rows; ++r)
                for (std::size_t m : members) add_row(m, r);
            }
            return out;
          });
    }
  }
}

TEST(ProcessCollectives, PermutationsAndBroadcasts) {
  const auto in = some_blocks<float>(3000);
  for (const Over& over : everywhere()) {
    SCOPED_TRACE(over.text);
    const int n = static_cast<int>(over.grid.clique(0, over.indices).size());
    std::vector<std::pair<int, int>> shift;  // the last rank gets nothing
    for (int r = 1; r < n; ++r) shift.push_back({r, r - 1});
    const auto rank_of = [&](std::size_t p) {
      const auto members = over.grid.clique(p, over.indices);
      return std::find(members.begin(), members.end(), p) - members.begin();
    };
    expect_blocks<float>(
        over.grid, in, Shape{3000}, [&](Array b) { return ppermute(b, over.axes, shift); },
        [&](std::size_t p) {
          const auto rank = rank_of(p);
          if (rank == n - 1) return std::vector<float>(3000, 0.f);
          return in[over.grid.clique(p, over.indices)[static_cast<std::size_t>(rank + 1)]];
        });
    expect_blocks<float>(
        over.grid, in, Shape{3000},
        [&](Array b) { return broadcast_from(b, over.axes, n - 1) * 1.f; },
        [&](std::size_t p) {
          return in[over.grid.clique(p, over.indices)[static_cast<std::size_t>(n - 1)]];
        });
  }
}

// Blocks that are too large for the ways of small ones: in shared memory, or read in the other
// process.
TEST(ProcessCollectives, LargeBlocks) {
  const Over over{line(), "i", {0}, "line"};
  const auto n = static_cast<std::size_t>(device_count());
  for (const std::int64_t count : {20'000, 800'000}) {  // 80 KB, 3.2 MB
    SCOPED_TRACE(count);
    std::vector<std::vector<std::int32_t>> in(n);
    for (std::size_t p = 0; p < n; ++p) {
      for (std::int64_t i = 0; i < count; ++i)
        in[p].push_back(static_cast<std::int32_t>(i * 7 + static_cast<std::int64_t>(p)));
    }
    std::vector<std::pair<int, int>> around;
    for (int r = 0; r < static_cast<int>(n); ++r) around.push_back({r, (r + 1) % int(n)});
    std::vector<std::int32_t> sum(static_cast<std::size_t>(count), 0);
    for (const auto& block : in)
      for (std::size_t i = 0; i < block.size(); ++i) sum[i] += block[i];
    expect_blocks<std::int32_t>(
        over.grid, in, Shape{count}, [&](Array b) { return ppermute(b, "i", around); },
        [&](std::size_t p) { return in[(p + n - 1) % n]; });
    expect_blocks<std::int32_t>(
        over.grid, in, Shape{count}, [&](Array b) { return pbroadcast(psum(b, "i"), "i"); },
        [&](std::size_t) { return sum; });
  }
}

// Sums in which each process adds a share of all blocks in place: in a captured program whose
// values need more than one block of shared memory, and on views into such a block, which other
// processes copy.
TEST(ProcessCollectives, SumsWhereBlocksLie) {
  if (on_gpus()) GTEST_SKIP() << "other processes do not read the memory of GPUs";
  const Grid grid = line();
  constexpr std::int64_t kCount = 150'003;  // four of them have more than 2 MiB
  const auto in = some_blocks<float>(kCount);
  std::vector<float> flat;
  for (const auto& block : in) flat.insert(flat.end(), block.begin(), block.end());
  const Array x =
      device_put(array<float>(flat, {kCount * device_count()}), NamedSharding(grid.mesh, P("i")));
  Blocks<float> tripled = in;
  for (auto& block : tripled)
    for (float& v : block) v *= 3.f;
  const std::vector<float> want =
      combined<float>(tripled, grid.clique(0, {0}), [](float a, float b) { return a + b; });
  const auto row_sum = shard_map(
      [](Array b) {
        const Array large = sin(broadcast_in_dim(b, {4, kCount}, {1})) * 0.f +
                            broadcast_in_dim(b * 3.f, {4, kCount}, {1});
        return psum(reshape(slice_in_dim(large, 2, 3), {kCount}), "i");
      },
      grid.mesh, {P("i")}, P());
  const auto whole_sum = shard_map(
      [](Array b) {
        const Array large = cumsum(broadcast_in_dim(b, {4, kCount}, {1}), 0);
        return psum(b * 3.f, "i") + psum(sum(large), "i") * 0.f;
      },
      grid.mesh, {P("i")}, P());
  const auto fast_rows = jit(row_sum);
  const auto fast = jit(whole_sum);
  for (int round = 0; round < 4; ++round) {
    for (const Array& y : {row_sum(x), whole_sum(x), fast_rows(x), fast(x)}) {
      const std::vector<float> got = y.to_vector<float>();
      ASSERT_EQ(got.size(), want.size());
      ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << round;
    }
  }
}

TEST(ProcessCollectives, GroupsAndWhatDoesNotVary) {
  const Grid grid = line();
  const auto in = some_blocks<float>(20);
  if (device_count() == 8)
    expect_blocks<float>(
        grid, in, Shape{20},
        [](Array b) {
          return psum(b, "i", {.axis_index_groups = {{0, 5, 2, 7}, {4, 1, 6, 3}}});
        },
        [&](std::size_t p) {
          const bool first = p == 0 || p == 5 || p == 2 || p == 7;
          const std::vector<std::size_t> members =
              first ? std::vector<std::size_t>{0, 2, 5, 7} : std::vector<std::size_t>{1, 3, 4, 6};
          return combined<float>(in, members, [](float a, float b) { return a + b; });
        },
        sum_bound(in));
  // The sum over i does not vary over i, so that one sum over j serves all of i.
  for (const Grid& two : {square(), wide(), crossed()}) {
    expect_blocks<float>(
        two, in, Shape{20}, [](Array b) { return psum(psum(b, "i"), "j"); },
        [&](std::size_t) {
          Blocks<float> rows(static_cast<std::size_t>(two.sizes[1]));
          for (std::size_t j = 0; j < rows.size(); ++j)
            rows[j] =
                combined<float>(in, two.clique(j, {0}), [](float a, float b) { return a + b; });
          std::vector<std::size_t> members(rows.size());
          for (std::size_t j = 0; j < rows.size(); ++j) members[j] = j;
          return combined<float>(rows, members, [](float a, float b) { return a + b; });
        },
        sum_bound(in));
  }
}

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

TEST(ProcessArrays, PutGatherReshardAndRead) {
  const Grid grid = square();
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Array host = array<float>(values, {8, 8});
  const Array x = device_put(host, NamedSharding(grid.mesh, P("i", "j")));
  EXPECT_EQ(x.is_fully_addressable(), process_count() == 1);
  EXPECT_EQ(x.addressable_shards().size(), local_devices().size());
  EXPECT_EQ(process_allgather(x).to_vector<float>(), values);
  EXPECT_TRUE(process_allgather(x).is_fully_addressable());
  if (process_count() > 1) {
    EXPECT_THAT([&] { x.to_vector<float>(); },
                testing::ThrowsMessage<ValueError>(testing::HasSubstr("process_allgather(x)")));
    EXPECT_THAT(to_string(x), testing::AllOf(testing::HasSubstr("of which this process has"),
                                             testing::HasSubstr("process_allgather(x)")));
  }
  EXPECT_THAT(debug::draw_array_sharding(x),
              testing::HasSubstr("PU " + std::to_string(device_count() - 1)));  // everywhere
  // The array is on a device of process 0, where the others cannot read it.
  const Array there = device_put(x, devices().front());
  if (process_index() == 0) {
    EXPECT_EQ(there.to_vector<float>(), values);
  } else {
    EXPECT_THAT([&] { there.to_vector<float>(); },
                testing::ThrowsMessage<ValueError>(testing::HasSubstr("is this process's")));
    EXPECT_THROW((there[{0, 0}].item<float>()), ValueError);
    EXPECT_EQ(there.addressable_shards().size(), 0u);
  }
  // Each process gives only its own part; other elements are not read.
  const Array rows = device_put(host, NamedSharding(line().mesh, P("i")));
  std::vector<float> mine(values.size(), -1.f);
  for (const Shard& shard : rows.addressable_shards()) {
    const auto first = static_cast<std::size_t>(shard.index[0].start * 8),
               end = static_cast<std::size_t>(shard.index[0].stop * 8);
    for (std::size_t i = first; i < end; ++i) mine[i] = values[i];
  }
  const Array joined = device_put(array<float>(mine, {8, 8}), NamedSharding(line().mesh, P("i")));
  EXPECT_EQ(process_allgather(joined).to_vector<float>(), values);
  // A process makes its own blocks and is asked for no others.
  std::size_t made = 0;
  const Array called = make_array_from_callback<float>(
      {8, 8}, NamedSharding(line().mesh, P("i")),
      [&](std::span<const Slice> index, std::span<float> block) {
        made += block.size();
        std::copy_n(values.begin() + index[0].start * 8, block.size(), block.begin());
      });
  EXPECT_EQ(made, values.size() / static_cast<std::size_t>(process_count()));
  EXPECT_EQ(process_allgather(called).to_vector<float>(), values);
  for (const P& spec : {P("j", "i"), P(axes("i", "j")), P(none, "j"), P()}) {
    const Array moved = device_put(x, NamedSharding(grid.mesh, spec));
    EXPECT_EQ(process_allgather(moved).to_vector<float>(), values) << to_string(spec);
  }
  const Array line_up = device_put(x, NamedSharding(line().mesh, P("i")));
  EXPECT_EQ(process_allgather(line_up).to_vector<float>(), values);
  // Outside of bodies, under jit too.
  const auto f = [](Array a) { return sum(matmul(a, transpose(a))); };
  const float wanted = f(host).item<float>();
  EXPECT_EQ(process_allgather(f(x)).item<float>(), wanted);
  const auto fast = jit(f);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fast(x).item<float>(), wanted);
}

TEST(ProcessArrays, HostControlFlowAndLoops) {
  const Grid grid = square();
  const auto body = [](Array b) {
    Array total = psum(sum(b), axes("i", "j"));
    int steps = 0;
    while (total > 1.f) {
      b = b / 2.f;
      total = psum(sum(b), axes("i", "j"));
      ++steps;
    }
    return b + static_cast<float>(steps);
  };
  const Array x = full({8, 2}, 3.f);
  const Array y = shard_map(body, grid.mesh, {P(axes("i", "j"))}, P(axes("i", "j")))(x);
  EXPECT_EQ(process_allgather(y).to_vector<float>()[0], 3.f / 64 + 6);
  // Branches that differ from device to device, with a collective among devices that take the same
  // one.
  const auto ways = [](Array b) {
    return cond(
        axis_index("i") < 2, [](Array v) { return psum(psum(v, "j"), "j") * 1.f; },
        [](Array v) { return psum(v, "j") + 100.f; }, b);
  };
  const auto total = [&](Array b) { return psum(ways(b), "i"); };
  const auto mapped = shard_map(total, grid.mesh, {P(axes("i", "j"))}, P());
  const auto fast = jit(mapped);
  for (int i = 0; i < 5; ++i) {
    const Array z = i == 0 ? mapped(full({8}, 1.f)) : fast(full({8}, 1.f));
    // Of the rows (four, with eight devices) the first two sum twice.
    const auto rows = static_cast<float>(grid.sizes[0]);
    EXPECT_EQ(z.to_vector<float>()[0], std::min(rows, 2.f) * 4 + std::max(rows - 2, 0.f) * 102);
  }
}

// Along an axis that leads from one host to another (scripts/several_hosts), a ring, where the
// transfer is long; in all processes alike.
TEST(ProcessArrays, AllProcessesChooseOneFormOfAnOverlappedProduct) {
  const Grid grid = line();
  const auto choice_of = [&](std::int64_t rows, std::int64_t inner, std::int64_t columns) {
    Overlap form = Overlap::automatic;
    const auto product = [&](Array a, Array b) {
      form = overlap_choice("mk,kn->mn", a, b, "i", AllGatherEinsumOptions{}).form;
      return all_gather_einsum("mk,kn->mn", a, b, "i");
    };
    eval_shape(shard_map(product, grid.mesh, {P("i"), P(none, "i")}, P(none, "i")))(
        abstract_array(ShapedArray({rows * device_count(), inner}, f32)),
        abstract_array(ShapedArray({inner, columns * device_count()}, f32)));
    return form;
  };
  const Overlap large = choice_of(2048, 4096, 512), small = choice_of(4, 16, 16);
  const auto summed = shard_map([](Array b) { return psum(b, "i"); }, grid.mesh, {P("i")}, P());
  const Array forms = make_array_from_callback<std::int32_t>(
      {device_count()}, NamedSharding(grid.mesh, P("i")),
      [&](std::span<const Slice>, std::span<std::int32_t> block) {
        std::fill(block.begin(), block.end(), 1 << (8 * static_cast<int>(large)));
      });
  EXPECT_EQ(summed(forms).item<std::int32_t>(), static_cast<std::int32_t>(device_count())
                                                    << (8 * static_cast<int>(large)));
  if (on_gpus()) return;
  bool leaves_host = false;
  for (const Device& d : devices())
    leaves_host |=
        Processes::joined() != nullptr && Processes::joined()->peers().node_of(d.process_index()) !=
                                              Processes::joined()->peers().node_of(0);
  EXPECT_EQ(large, leaves_host ? Overlap::ring : Overlap::none);
  EXPECT_EQ(small, Overlap::none);
}

TEST(ProcessArrays, TrainingHasTheBitsOfOneProcess) {
  // Data-parallel: the gradient's bits are those of the tree over eight devices.
  const Grid grid = line();
  std::vector<float> xs(64 * 16), ys(64), ws(16, 0.1f);
  for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 0; i < ys.size(); ++i) ys[i] = std::cos(static_cast<float>(i));
  const Array x = device_put(array<float>(xs, {64, 16}), NamedSharding(grid.mesh, P("i")));
  const Array y = device_put(array<float>(ys, {64}), NamedSharding(grid.mesh, P("i")));
  const auto loss = [&](Array w, Array a, Array b) {
    return shard_map([](Array wb, Array ab,
                        Array bb) { return pmean(mean(square(tanh(matmul(ab, wb)) - bb)), "i"); },
                     grid.mesh, {P(), P("i"), P("i")}, P())(w, a, b);
  };
  const auto step = jit([&](Array w, Array a, Array b) { return w - 0.5f * grad(loss)(w, a, b); });
  Array w = array<float>(ws, {16});
  for (int i = 0; i < 10; ++i) w = step(w, x, y);
  std::uint64_t hash = 0;
  for (const float v : process_allgather(w).to_vector<float>())
    hash = hash * 1000003 + std::bit_cast<std::uint32_t>(v);
  std::printf("training hash %llu\n", static_cast<unsigned long long>(hash));
}

}  // namespace
}  // namespace shmap
