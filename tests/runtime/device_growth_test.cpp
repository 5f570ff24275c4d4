// The work for one more device is the same whether there are 8 devices or 512: for operations, for
// collectives, for transfers, for replays, in bodies and outside of them; and the work for one more
// allocation of a program, and for one more user of a value when a program is fused; and that for
// one more process of a clique. Nothing is timed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "collectives/clique_table.h"
#include "core/array/mesh_impl.h"
#include "core/compiler/fusion/copy_for_columns.h"
#include "core/compiler/fusion/fuse.h"
#include "core/compiler/passes/simplify.h"
#include "core/device/backend.h"
#include "core/device/plan_memory.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/shmap.h"
#include "tests/support/child_process.h"
#include "tests/support/counted_blocks.h"

namespace shmap::test {
namespace {

// The calls whose work is counted, over all devices of the process.
class Calls {
 public:
  using Call = std::function<void()>;
  using Body = std::function<Array(Array)>;

  std::map<std::string, Call> all() const {
    std::map<std::string, Call> calls;
    const auto keep = [](auto f) { return [f] { f().block_until_ready(); }; };
    calls["eager addition"] = keep([this] { return x_ + y_; });
    calls["eager addition in place"] = keep([this] { return exp(-x_) * 2.f; });
    calls["eager sum"] = keep([this] { return sum(x_); });
    calls["eager product"] = keep([this] { return matmul(x_, y_); });
    calls["eager slice"] = keep([this] { return slice(grid_, {0, 1}, {n_, 3}); });
    calls["eager slice from a position on the device"] = keep([this] {
      return dynamic_slice(whole_grid_, {second_, 0}, {4, 2});
    });
    calls["eager row of a position on the device"] = keep([this] { return whole_grid_[second_]; });
    calls["eager transpose"] = keep([this] { return transpose(grid_); });
    calls["eager addition of a literal"] = keep([this] { return x_ + 1.f; });
    calls["eager broadcast of a replicated array"] = keep([this] { return x_ * whole_; });
    calls["device_put of a vector"] =
        keep([this] { return device_put(array<float>(values_, {n_}), split()); });
    calls["device_put, replicated"] =
        keep([this] { return device_put(array<float>(values_, {n_}), NamedSharding(mesh_, P())); });
    calls["device_put of a split array to one device"] =
        keep([this] { return device_put(x_, devices().front()); });
    calls["device_put of a split array, replicated"] =
        keep([this] { return device_put(x_, NamedSharding(mesh_, P())); });
    calls["to_vector"] = [this] { x_.to_vector<float>(); };
    calls["to_vector, replicated"] = [this] { whole_.to_vector<float>(); };
    calls["item"] = [this] { sum_.item<float>(); };
    calls["addressable_shards"] = [this] { x_.addressable_shards(); };
    const auto add_body = [&](const std::string& name, const Body& body, const PartitionSpec& out) {
      const auto f = shard_map(body, mesh_, P("i"), out);
      calls[name] = keep([this, f] { return f(x_); });
      calls[name + ", replayed"] = keep([this, replayed = jit(f)] { return replayed(x_); });
    };
    add_body("ten operations", ten_operations, P("i"));
    // A replay asks of each array that is given up whether anybody else holds its buffers: those in
    // which an earlier replay left a result that does not lie in its operand.
    calls["flip, replayed on what is given up"] =
        [x = x_ * 1.f, replayed = jit(shard_map([](Array a) { return flip(a); }, mesh_, P("i"),
                                                P("i")))]() mutable {
          x = replayed(std::move(x));
          x.block_until_ready();
        };
    add_body(
        "psum", [](Array a) { return psum(a, "i"); }, P());
    add_body(
        "pmax", [](Array a) { return pmax(a, "i"); }, P());
    add_body(
        "all_gather", [](Array a) { return all_gather(a, "i", {.tiled = true}); }, P("i"));
    add_body(
        "ppermute", [ring = ring()](Array a) { return ppermute(a, "i", ring); }, P("i"));
    add_body(
        "dynamic_slice", [second = second_](Array a) { return dynamic_slice(a, {second}, {2}); },
        P("i"));
    add_body(
        "axis_index", [](Array a) { return a + astype(axis_index("i"), f32); }, P("i"));
    return calls;
  }

 private:
  static Array ten_operations(Array a) {
    for (int k = 0; k < 5; ++k) a = sin(a) + 1.f;
    return a;
  }
  std::vector<std::pair<int, int>> ring() const {
    std::vector<std::pair<int, int>> pairs;
    for (int k = 0; k < count_; ++k) pairs.emplace_back(k, (k + 1) % count_);
    return pairs;
  }

  int count_ = static_cast<int>(devices().size());
  std::size_t n_ = static_cast<std::size_t>(count_) * 4;
  Mesh mesh_ = make_mesh({count_}, {"i"});
  NamedSharding split() const { return NamedSharding(mesh_, P("i")); }
  std::vector<float> values_ = std::vector<float>(n_, 1.f);
  Array x_ = device_put(array<float>(values_, {n_}), split());
  Array y_ = device_put(array<float>(values_, {n_}), split());
  Array grid_ = device_put(zeros({n_, 4}), split());
  Array whole_ = device_put(ones({1}), NamedSharding(mesh_, P()));
  Array whole_grid_ = device_put(ones({8, 2}), NamedSharding(mesh_, P()));
  Array second_ = device_put(array<std::int32_t>({1}, {}), NamedSharding(mesh_, P()));
  Array sum_ = sum(x_);
};

// The blocks of each call on so many devices, after calls that compile, capture and fill caches.
std::map<std::string, std::int64_t> work_on(const std::string& devices) {
  const ChildResult child =
      in_child({{"SHMAP_DEVICES", devices}, {"SHMAP_EXECUTOR", "inline"}}, [] {
        const Calls calls;
        for (const auto& [name, call] : calls.all()) {
          for (int k = 0; k < 4; ++k) call();
          const std::int64_t before = counted_blocks();
          call();
          std::printf("%lld %s\n", static_cast<long long>(counted_blocks() - before), name.c_str());
        }
      });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  std::map<std::string, std::int64_t> work;
  std::istringstream lines(child.output);
  std::int64_t blocks = 0;
  for (std::string name; lines >> blocks && std::getline(lines >> std::ws, name);)
    work[name] = blocks;
  return work;
}

// `devices`: SHMAP_DEVICES for so many. What a call does once is in none of the differences.
void expect_linear(const std::function<std::string(int)>& devices) {
  const auto few = work_on(devices(8)), some = work_on(devices(64)), many = work_on(devices(512));
  ASSERT_FALSE(few.empty());
  for (const auto& [name, blocks] : few) {
    const double first = static_cast<double>(some.at(name) - blocks) / (64 - 8);
    const double then = static_cast<double>(many.at(name) - some.at(name)) / (512 - 64);
    SCOPED_TRACE(name + ": " + std::to_string(blocks) + " basic blocks on 8 devices, " +
                 std::to_string(some.at(name)) + " on 64, " + std::to_string(many.at(name)) +
                 " on 512");
    // (A search in a tree of all blocks takes 1.5 times as long among 512 as among 64.)
    EXPECT_LE(then, 1.4 * first + 1);
  }
}

TEST(DeviceGrowth, OneMemorySpace) {
  expect_linear([](int n) { return "cpu:" + std::to_string(n); });
}
TEST(DeviceGrowth, TwoMemorySpaces) {
  expect_linear([](int n) { return "cpu:" + std::to_string(n) + "/2"; });
}
TEST(DeviceGrowth, AMemorySpaceEach) {
  expect_linear([](int n) { return "cpu:" + std::to_string(n) + "/" + std::to_string(n); });
}

// The work of making the table of a collective over so many processes of one device each, of which
// this process is the first.
std::int64_t table_work(int processes) {
  std::vector<Device> all = {devices().front()};
  for (int p = 1; p < processes; ++p)
    all.push_back(detail::DeviceAccess::make(1'000'000 + p, p, DeviceKind::cpu));
  const Mesh mesh(NdArray<Device>(all, {processes}), "i");
  const std::int64_t before = counted_blocks();
  const CliqueTable& table = clique_table(*mesh.impl(), std::vector<int>{0}, {}, 1);
  EXPECT_NE(table.cross, nullptr);
  return counted_blocks() - before;
}

TEST(ProcessGrowth, TheTableOfACollective) {
  const std::int64_t some = table_work(128), many = table_work(512);
  // It sorts the ranks.
  EXPECT_LE(many, 5.5 * some) << some << " basic blocks for 128 processes, " << many << " for 512";
}

std::int64_t packing_work(const std::vector<Allocation>& tape) {
  const std::int64_t before = counted_blocks();
  plan_layout(tape);
  return counted_blocks() - before;
}
MemorySpace* const no_space = nullptr;  // a layout only compares it

// The work of packing the memory of 32 operations on so many devices, each of which has a block of
// every result.
std::int64_t packing_work_of_devices(std::int64_t devices) {
  constexpr std::int64_t operations = 32;
  std::vector<Allocation> tape;
  for (std::int64_t i = 0; i < operations; ++i) {
    for (std::int64_t d = 0; d < devices; ++d) {
      const std::int64_t died = (i + 1 + i % 3) * devices + d;
      tape.push_back({no_space, i % 4 == 0 ? 4096 : 1024, i * devices + d,
                      std::min(died, operations * devices)});
    }
  }
  return packing_work(tape);
}

TEST(DeviceGrowth, PackingOfMemory) {
  const std::int64_t some = packing_work_of_devices(64), many = packing_work_of_devices(512);
  // A life is divided into a logarithmic number of intervals, which are searched one by one.
  EXPECT_LE(many, 8 * 1.8 * some) << some << " basic blocks for 64 devices, " << many << " for 512";
}

// The work of packing the memory of a program that is so many operations long.
std::int64_t packing_work_of_operations(std::int64_t operations) {
  std::vector<Allocation> tape;
  for (std::int64_t i = 0; i < operations; ++i)
    tape.push_back({no_space, 1000 + i * 7919 % 5000, i, std::min(operations, i + 1 + i % 9)});
  return packing_work(tape);
}

TEST(ProgramGrowth, PackingOfMemory) {
  const std::int64_t some = packing_work_of_operations(1024),
                     many = packing_work_of_operations(4096);
  EXPECT_LE(many, 4.6 * some) << some << " basic blocks for 1,024 allocations, " << many
                              << " for 4,096";
}

template <class F>
std::int64_t work_of_pass(JaxprRef (*pass)(const Jaxpr&), F f) {
  const ClosedJaxpr traced = make_jaxpr(f)(ShapedArray({64, 64}, f32));
  const JaxprRef program = simplify(*traced.impl().jaxpr);
  const std::int64_t before = counted_blocks();
  pass(*program);
  return counted_blocks() - before;
}

// One mask for so many products, none of which waits for another.
std::int64_t work_for_users_of_a_mask(int users) {
  return work_of_pass(fuse, [users](Array x) {
    const Array mask = random::bernoulli(random::key(0), 0.5f, {64, 64});
    Array total = x;
    for (int i = 0; i < users; ++i)
      total = total + matmul(where(mask, x * static_cast<float>(i), 0.f), x);
    return total;
  });
}
TEST(ProgramGrowth, FusionOfTheUsersOfAMask) {
  const std::int64_t some = work_for_users_of_a_mask(200), many = work_for_users_of_a_mask(800);
  EXPECT_LE(many, 4.6 * some) << some << " basic blocks for 200 users, " << many << " for 800";
}

// So many cheap values, each read before the sum of a column and after it.
std::int64_t work_for_values_around_a_sum(int values) {
  return work_of_pass(copy_for_columns, [values](Array x) {
    std::vector<Array> shared;
    for (int i = 0; i < values; ++i) shared.push_back(x + static_cast<float>(i));
    Array product = shared[0];
    for (int i = 1; i < values; ++i) product = product * shared[static_cast<std::size_t>(i)];
    const Array first = sum(product, 0);
    Array total = first;
    for (const Array& value : shared) total = total + sum(value * first, 0);
    return total;
  });
}
TEST(ProgramGrowth, CopiesOfValuesAroundASum) {
  const std::int64_t some = work_for_values_around_a_sum(200),
                     many = work_for_values_around_a_sum(800);
  EXPECT_LE(many, 4.6 * some) << some << " basic blocks for 200 values, " << many << " for 800";
}

// The backward pass reads what each of so many operations of the forward pass computed. A part of
// the work is a square, with a small factor: FuseClusters::lower goes through all clusters that a
// cluster depends on.
std::int64_t work_for_a_gradient(int operations) {
  return work_of_pass(fuse, grad([operations](Array x) {
                        for (int i = 0; i < operations; ++i) x = sin(x) * cos(x);
                        return sum(x);
                      }));
}
TEST(ProgramGrowth, FusionOfAGradient) {
  const std::int64_t some = work_for_a_gradient(200), many = work_for_a_gradient(800);
  EXPECT_LE(many, 7 * some) << some << " basic blocks for 200 operations, " << many << " for 800";
}

}  // namespace
}  // namespace shmap::test
