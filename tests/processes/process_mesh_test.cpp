// Meshes of which some of the processes drive no device (tests/CMakeLists.txt runs it as 2 x 4, 4 x
// 2 and 8 x 1 processes and devices, on GPUs as 2 x 2 and 4 x 1).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/device_grids.h"

namespace shmap {
namespace {

TEST(ProcessMesh, OfOtherProcessesIsRefused) {
  const Mesh first(NdArray<Device>({devices().front()}, Shape{1}), "i");
  const auto mapped = shard_map([](Array b) { return psum(b + 1.f, "i"); }, first, {P("i")}, P());
  const auto fast = jit(mapped);
  for (int round = 0; round < 4; ++round) {
    if (process_index() == 0) {
      EXPECT_EQ(mapped(ones({2})).to_vector<float>()[0], 2.f);
      EXPECT_EQ(fast(ones({2})).to_vector<float>()[0], 2.f);
      continue;
    }
    const auto refused = testing::ThrowsMessage<ValueError>(
        testing::HasSubstr("is this process's: only the processes that drive devices of a mesh"));
    EXPECT_THAT([&] { mapped(ones({2})); }, refused);
    EXPECT_THAT([&] { fast(ones({2})); }, refused);
  }
}

// A process without a device of the mesh gets an error from every call that needs one, and waits
// for nobody: the processes that drive the mesh do not know that it called.
TEST(ProcessMesh, WithoutADeviceOfThisProcessIsNamed) {
  const int drivers = process_count() > 2 ? 2 : 1;
  std::vector<Device> theirs;
  for (const Device& d : devices())
    if (d.process_index() < drivers) theirs.push_back(d);
  const auto n = static_cast<std::int64_t>(theirs.size());
  const Mesh mesh(NdArray<Device>(theirs, Shape{n}), "i");
  const Array host = iota(f32, 2 * n);
  const Array split = device_put(host, NamedSharding(mesh, P("i")));
  const Array whole = device_put(host, NamedSharding(mesh, P()));
  const Array one = device_put(full({1}, 3.f), NamedSharding(mesh, P()));
  const auto summed = shard_map([](Array b) { return psum(b, "i"); }, mesh, {P("i")}, P());
  const auto loss = [&](Array x) { return sum(summed(x) * 2.f); };
  struct Call {
    const char* name;
    std::function<void()> make;
  };
  const std::vector<Call> calls = {
      {"shard_map", [&] { summed(split).block_until_ready(); }},
      {"shard_map", [&] { summed(host).block_until_ready(); }},
      {"shard_map", [&] { grad(loss)(host).block_until_ready(); }},
      {"shard_map",
       [&] {
         vmap(summed)(stack({host, host}, 0)).block_until_ready();
       }},
      {"jit", [&] { jit(summed)(split).block_until_ready(); }},
      {"jit", [&] { jit(grad(loss))(split).block_until_ready(); }},
      {"jit", [&] { jit([](Array x) { return sum(x); })(split).block_until_ready(); }},
      {"add", [&] { (split + 1.f).block_until_ready(); }},
      {"add", [&] { (whole + split).block_until_ready(); }},
      {"device_put", [&] { device_put(split, NamedSharding(mesh, P())).block_until_ready(); }},
      {"process_allgather", [&] { EXPECT_EQ(process_allgather(split).size(), 2 * n); }},
      {"process_allgather", [&] { EXPECT_EQ(process_allgather(whole).size(), 2 * n); }},
      {"to_vector", [&] { EXPECT_EQ(whole.to_vector<float>().back(), 2.f * n - 1.f); }},
      {"item", [&] { EXPECT_EQ(one.item<float>(), 3.f); }},
      {"a host condition", [&] { EXPECT_TRUE(static_cast<bool>(one)); }},
  };
  const bool drives = process_index() < drivers;
  // Of an array on one device of another process some calls make another such array.
  const bool may_do_nothing = n == 1;
  for (int round = 0; round < 2; ++round) {
    for (const auto& [name, make] : calls) {
      SCOPED_TRACE(name);
      try {
        make();
        EXPECT_TRUE(drives || may_do_nothing) << "no error";
      } catch (const ValueError& e) {
        EXPECT_FALSE(drives) << e.what();
        EXPECT_THAT(e.what(), testing::AllOf(testing::StartsWith(name),
                                             testing::HasSubstr(": none of the devices of "),
                                             testing::HasSubstr("is this process's")));
      }
    }
    // What needs no device there does nothing.
    EXPECT_EQ(split.addressable_shards().empty(), !drives);
    split.block_until_ready();
    const Array filled = make_array_from_callback<float>(
        {2 * n}, NamedSharding(mesh, P("i")), [&](std::span<const Slice>, std::span<float> block) {
          EXPECT_TRUE(drives);
          std::fill(block.begin(), block.end(), 1.f);
        });
    EXPECT_EQ(filled.addressable_shards().empty(), !drives);
    // All processes are still in step.
    const Mesh all = make_mesh({static_cast<int>(device_count())}, "i");
    const auto of_all = shard_map([](Array b) { return psum(b, "i"); }, all, {P("i")}, P());
    EXPECT_EQ(of_all(ones({device_count()})).item<float>(), static_cast<float>(device_count()));
  }
}

// On one line: meshes of groups of devices, made and used in different orders, meshes of the same
// devices, made in different orders, and one that a process makes alone. None of it is a fault.
TEST(ProcessMesh, OneFunctionMakesDifferentMeshes) {
  const auto made = [](std::vector<Device> of, Shape sizes) {
    return make_mesh(sizes, axes("i", "j"), std::move(of));
  };
  const auto sum_on = [](const Mesh& mesh) {
    return shard_map([](Array b) { return psum(b, axes("i", "j")); }, mesh, {P(axes("i", "j"))},
                     P())(ones({mesh.size()}));
  };
  // A GPU runs the collectives of NCCL in one order.
  const int turn = devices().front().kind() == DeviceKind::cpu ? process_index() % 2 : 0;
  std::vector<Device> groups[2];
  for (const Device& d : devices()) groups[d.id() % 2].push_back(d);
  std::vector<Array> sums;
  for (const int i : {0, 1}) {
    const std::vector<Device>& group = groups[(i + turn) % 2];
    const auto n = static_cast<std::int64_t>(group.size());
    if (std::ranges::any_of(group,
                            [](const Device& d) { return d.process_index() == process_index(); }))
      sums.push_back(sum_on(made(group, {n / 2, 2})));
  }
  for (const Array& sum : sums)
    EXPECT_EQ(sum.item<float>(), static_cast<float>(device_count() / 2));

  const auto n = static_cast<std::int64_t>(device_count());
  const Shape shapes[] = {{n / 2, 2}, {2, n / 2}};
  for (const int i : {0, 1}) made({}, shapes[(i + turn) % 2]);
  if (process_index() == 1) made({}, {n, 1});
  for (const Shape& shape : shapes)
    EXPECT_EQ(sum_on(made({}, shape)).item<float>(), static_cast<float>(n));
}

}  // namespace
}  // namespace shmap
