// shmap-test: devices
// Reductions and layers of arrays split over a mesh: the devices' partial results are combined.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "shmap/mesh.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"

namespace shmap {
namespace {

// Small whole numbers out of order, whose sums are exact.
std::vector<float> numbers(const Shape& shape) {
  std::vector<float> out(static_cast<std::size_t>(shape.num_elements()));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>((i * 37 + i / 11) % 17) - 8;
  return out;
}

Dims dims_of(std::uint32_t mask) {
  std::vector<int> out;
  for (int d = 0; d < kMaxRank; ++d)
    if (mask >> d & 1u) out.push_back(d);
  return Dims(out);
}

std::vector<PartitionSpec> specs() {
  return {P(),
          P("i", "j"),
          P("j", "i"),
          P(none, "i"),
          P("j", none),
          P(axes("i", "j")),
          P(none, axes("j", "i")),
          P(none, none, "j"),
          P("i", none, "j")};
}

using Reduction = Array (*)(Operand, Dims, bool);

// The result over a mesh equals that of one device, however the array was split.
TEST(ReduceSplit, SplitOverAMesh) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Shape shape{8, 16, 4};
  const std::vector<Reduction> reductions = {sum, prod, max, min, mean, any, all, logsumexp};
  for (DType dtype : {f32, bf16, i32, bool_}) {
    const Array x = astype(array(numbers(shape), shape), dtype);
    for (const PartitionSpec& spec : specs()) {
      const Array split = device_put(x, NamedSharding(mesh, spec));
      for (std::uint32_t mask = 0; mask < 8; ++mask) {
        for (std::size_t r = 0; r < reductions.size(); ++r) {
          SCOPED_TRACE(std::string(short_name(dtype)) + " mask " + std::to_string(mask) +
                       " reduction " + std::to_string(r) + " " +
                       to_string(split.sharding().spec()));
          const Array want = astype(reductions[r](x, dims_of(mask), false), f32);
          const Array got = astype(reductions[r](split, dims_of(mask), false), f32);
          ASSERT_EQ(got.shape(), want.shape());
          const auto w = want.to_vector<float>(), g = got.to_vector<float>();
          // Products and exponentials are rounded on each device; bf16 sums of parts as well.
          const bool exact = r != 1 && r != 7 && r != 4 && dtype != bf16;
          for (std::size_t i = 0; i < w.size(); ++i) {
            if (g[i] == w[i]) continue;
            ASSERT_FALSE(exact) << i << ": " << g[i] << " is not " << w[i];
            ASSERT_NEAR(g[i], w[i], std::abs(w[i]) * (dtype == bf16 ? 2e-2 : 1e-6)) << i;
          }
        }
      }
      EXPECT_EQ(argmax(split, 1).to_vector<std::int32_t>(), argmax(x, 1).to_vector<std::int32_t>());
      EXPECT_EQ(argmin(split).to_vector<std::int32_t>(), argmin(x).to_vector<std::int32_t>());
    }
  }
}

TEST(ReduceSplit, ShardingOfWhatIsLeftIsKept) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = device_put(array(numbers({8, 4}), {8, 4}), NamedSharding(mesh, P("i", "j")));
  EXPECT_EQ(sum(x, 1).sharding(), NamedSharding(mesh, P("i")));
  EXPECT_EQ(max(x, 0).sharding(), NamedSharding(mesh, P("j")));
  EXPECT_EQ(argmax(x, 1).sharding(), NamedSharding(mesh, P("i")));
}

TEST(ReduceSplit, Layers) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto random = [](std::int64_t n, int step) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(i * static_cast<std::size_t>(step) % 41) / 8 - 2.5f;
    return out;
  };
  const Array x = array(random(8 * 16, 37), {8, 16});
  const Array scale = array(random(16, 5), {16}), bias = array(random(16, 9), {16});
  const auto near = [](const Array& got, const Array& want) {
    const auto g = got.to_vector<float>(), w = want.to_vector<float>();
    ASSERT_EQ(g.size(), w.size());
    for (std::size_t i = 0; i < w.size(); ++i)
      ASSERT_NEAR(g[i], w[i], 2e-6 * (1 + std::abs(w[i]))) << i;
  };
  for (const PartitionSpec& spec :
       {P("i", "j"), P("j", "i"), P(none, axes("i", "j")), P("i"), P()}) {
    const Array split = device_put(x, NamedSharding(mesh, spec));
    near(softmax(split), softmax(x));
    near(log_softmax(split, 0), log_softmax(x, 0));
    near(layer_norm(split, scale, bias), layer_norm(x, scale, bias));
    near(rms_norm(split, scale), rms_norm(x, scale));
    near(var(split, 1), var(x, 1));
    EXPECT_EQ(softmax(split).sharding(), split.sharding());
  }
}

}  // namespace
}  // namespace shmap
