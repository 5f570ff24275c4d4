// Arrays whose blocks lie in several processes: how they are made, moved, read and refused, and
// programs in which all processes must decide alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "core/processes/processes.h"
#include "shmap/shmap.h"
#include "tests/support/device_grids.h"

namespace shmap {
namespace {

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

}  // namespace
}  // namespace shmap
