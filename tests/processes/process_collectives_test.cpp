// Collectives on two to eight devices, of one process or of several (tests/CMakeLists.txt runs it
// as 1 x 8, 2 x 4, 4 x 2 and 8 x 1, on GPUs also as 2 x 1, 2 x 2 and 4 x 1).
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/fault.h"
#include "shmap/shmap.h"
#include "tests/processes/expected_blocks.h"
#include "tests/support/device_grids.h"

namespace shmap {
namespace {

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

// Two threads communicate on meshes without a common device, and begin in another order in every
// second process.
TEST(ProcessCollectives, TwoThreadsBeginInAnyOrderOnMeshesWithoutACommonDevice) {
  const std::size_t local = local_devices().size();
  const char* executor = std::getenv("SHMAP_EXECUTOR");
  if (local < 2 || (executor != nullptr && std::string(executor) == "inline"))
    GTEST_SKIP() << "takes two devices of each process, and an executor that does not wait inline";
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 2; ++t) {
    threads.emplace_back([t, local] {
      std::vector<Device> mine;
      for (const Device& d : devices())
        if (static_cast<std::size_t>(d.id()) % local == t) mine.push_back(d);
      const auto n = static_cast<std::int64_t>(mine.size());
      const Mesh mesh = make_mesh({n}, "i", mine);
      const auto f = shard_map([](Array b) { return psum(b, "i"); }, mesh, {P("i")}, P());
      const Array x = device_put(ones({n}), NamedSharding(mesh, P("i")));
      if ((static_cast<std::size_t>(process_index()) + t) % 2 == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_EQ(f(x).to_vector<float>(), std::vector<float>{static_cast<float>(n)});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// In one process an allocation of a collective fails, each in turn. Called again, the collective is
// the one that the others wait for.
TEST(ProcessCollectives, CalledAgainAfterOutOfMemory) {
  const Grid grid = line();
  const std::int64_t n = device_count();
  const std::vector<std::function<Array(Array)>> verbs = {
      [](Array b) { return psum(b, "i"); },
      [](Array b) { return psum_scatter(b, "i", {.tiled = true}); },
      [](Array b) { return all_gather(b, "i", {.axis = 0, .tiled = true}); },
      [](Array b) { return all_to_all(b, "i", 0, 0, {.tiled = true}); },
      [n](Array b) {
        return ppermute(b, "i", {{0, static_cast<int>(n) - 1}});
      },
      [](Array b) { return broadcast_from(b, "i", 1); }};
  int caught = 0;
  const auto values = [](const Array& y) {
    std::vector<std::vector<float>> all;
    for (const Shard& shard : y.addressable_shards()) all.push_back(shard.data.to_vector<float>());
    return all;
  };
  for (std::size_t v = 0; v < verbs.size(); ++v) {
    for (const std::int64_t each : {8, 16'000}) {
      const Array x = device_put(arange(n * each), NamedSharding(grid.mesh, P("i")));
      const auto f = shard_map(
          [&](Array b) {
            const Array y = verbs[v](b);
            return y.vma().empty() ? pbroadcast(y, "i") : y;
          },
          grid.mesh, {P("i")}, P("i"));
      const auto want = values(f(x));
      for (int nth = 1; nth <= 6; ++nth) {
        SCOPED_TRACE("verb " + std::to_string(v) + ", " + std::to_string(each) +
                     " elements, allocation " + std::to_string(nth));
        Array y;
        {
          const fault::Scoped one(process_index() == process_count() - 1
                                      ? "allocate#" + std::to_string(nth) + ":oom"
                                      : "");
          for (bool done = false; !done;) {
            try {
              y = f(x);
              done = true;
            } catch (const OutOfMemory&) {
              ++caught;
            }
          }
        }
        EXPECT_EQ(values(y), want);
      }
    }
  }
  EXPECT_EQ(caught > 0, process_index() == process_count() - 1);
}

}  // namespace
}  // namespace shmap
