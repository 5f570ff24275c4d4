// shmap-test: devices
// Cumulative operations: against plain loops, on arrays split over a mesh, and in a body.
#include "core/ops/scan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/ir/trace.h"
#include "shmap/mesh.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "shmap/shard_map.h"

namespace shmap {
namespace {

std::vector<float> numbers(std::int64_t n) {
  std::vector<float> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>((i * 37 + i / 11) % 17) - 8;
  return out;
}

// Running results along dim `axis` of [outer, len, inner].
template <class F>
std::vector<float> reference(std::vector<float> v, std::int64_t len, std::int64_t inner,
                             bool reverse, F f) {
  const auto n = static_cast<std::int64_t>(v.size());
  for (std::int64_t start = 0; start < n; start += len * inner) {
    for (std::int64_t k = 0; k < inner; ++k) {
      for (std::int64_t i = 1; i < len; ++i) {
        const std::int64_t here = reverse ? len - 1 - i : i, before = reverse ? here + 1 : here - 1;
        float& x = v[static_cast<std::size_t>(start + here * inner + k)];
        x = f(v[static_cast<std::size_t>(start + before * inner + k)], x);
      }
    }
  }
  return v;
}

float plus(float a, float b) { return a + b; }
float most(float a, float b) { return a < b ? b : a; }
float least(float a, float b) { return b < a ? b : a; }

TEST(Scan, AlongEachDim) {
  const Shape shape{6, 50, 70};
  const auto values = numbers(shape.num_elements());
  const Array x = array(values, shape);
  const std::int64_t inner[] = {3500, 70, 1};
  for (int d = 0; d < 3; ++d) {
    SCOPED_TRACE(d);
    const std::int64_t len = shape[static_cast<std::size_t>(d)];
    EXPECT_EQ(cumsum(x, d).to_vector<float>(), reference(values, len, inner[d], false, plus));
    EXPECT_EQ(cumsum(x, d - 3).to_vector<float>(), reference(values, len, inner[d], false, plus));
    EXPECT_EQ(cummax(x, d).to_vector<float>(), reference(values, len, inner[d], false, most));
    EXPECT_EQ(cummin(x, d).to_vector<float>(), reference(values, len, inner[d], false, least));
    EXPECT_EQ(bind(cumsum_p, x, ScanParams(d, true), {}).to_vector<float>(),
              reference(values, len, inner[d], true, plus));
    EXPECT_EQ(astype(cumsum(astype(x, i32), d), f32).to_vector<float>(),
              reference(values, len, inner[d], false, plus));
  }
}

// Long enough that several threads share one line of integers; in place they do not.
TEST(Scan, LongLinesOfIntegers) {
  constexpr std::int64_t kLen = 100003;
  std::vector<std::int32_t> values(kLen), up(kLen), down(kLen);
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kLen; ++i) {
    values[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(i) * 2654435761u);
    up[i] = static_cast<std::int32_t>(sum += static_cast<std::uint32_t>(values[i]));
  }
  sum = 0;
  for (std::size_t i = kLen; i-- > 0;)
    down[i] = static_cast<std::int32_t>(sum += static_cast<std::uint32_t>(values[i]));
  Array x = array(values, {kLen});
  EXPECT_EQ(cumsum(x, 0).to_vector<std::int32_t>(), up);
  EXPECT_EQ(bind(cumsum_p, x, ScanParams(0, true), {}).to_vector<std::int32_t>(), down);
  EXPECT_EQ(cumsum(std::move(x), 0).to_vector<std::int32_t>(), up);
}

TEST(Scan, Products) {
  const Array x = array<std::int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(cumprod(x, 1).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{1, 2, 6, 4, 20, 120}));
  EXPECT_EQ(cumprod(x, 0).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{1, 2, 3, 4, 10, 18}));
}

TEST(Scan, LogOfRunningSums) {
  const auto got = cumlogsumexp(array<float>({0, 0, 0, 1000}, {4}), 0).to_vector<float>();
  EXPECT_FLOAT_EQ(got[0], 0);
  EXPECT_FLOAT_EQ(got[1], std::log(2.f));
  EXPECT_FLOAT_EQ(got[2], std::log(3.f));
  EXPECT_FLOAT_EQ(got[3], 1000);
}

TEST(Scan, DonatedOperandsAreOverwritten) {
  Array x = array<float>({1, 2, 3}, {3});
  EXPECT_EQ(cumsum(std::move(x), 0).to_vector<float>(), (std::vector<float>{1, 3, 6}));
  const Array kept = array<float>({1, 2, 3}, {3});
  EXPECT_EQ(cumsum(kept, 0).to_vector<float>(), (std::vector<float>{1, 3, 6}));
  EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{1, 2, 3}));
}

TEST(Scan, Errors) {
  const auto text = [](auto&& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  const Array x = zeros({2, 3});
  EXPECT_NE(
      text([&] { cumsum(x, 2); }).find("cumsum: dim 2 is out of range for an array of rank 2"),
      std::string::npos);
  EXPECT_NE(text([&] { cumsum(x, 2); }).find("scan_ops_test.cpp:"), std::string::npos);
  EXPECT_NE(text([&] { cumprod(Array(1.f), 0); }).find("rank 0"), std::string::npos);
  EXPECT_NE(text([&] {
              bind(cumlogsumexp_p, astype(x, i32), ScanParams(0), {});
            }).find("cumlogsumexp: an operand of type i32[2,3]: wanted floats"),
            std::string::npos);
}

TEST(Scan, SplitOverAMesh) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = array(numbers(8 * 16), {8, 16});
  for (const PartitionSpec& spec :
       {P("i", "j"), P("j", "i"), P(none, "i"), P(axes("i", "j"), none), P()}) {
    const Array split = device_put(x, NamedSharding(mesh, spec));
    for (int d : {0, 1}) {
      EXPECT_EQ(cumsum(split, d).to_vector<float>(), cumsum(x, d).to_vector<float>());
      EXPECT_EQ(cummax(split, d).to_vector<float>(), cummax(x, d).to_vector<float>());
    }
  }
  const Array split = device_put(x, NamedSharding(mesh, P("i", "j")));
  EXPECT_EQ(cumsum(split, 1).sharding(), NamedSharding(mesh, P("i", none)));
}

TEST(Scan, InABody) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto values = numbers(8 * 16);
  std::string type;
  const auto f = shard_map(
      [&](Array block) {
        block = cumsum(block, 1);
        type = to_string(block.type());
        return block;
      },
      mesh, P("i"), P("i"));
  EXPECT_EQ(f(array(values, {8, 16})).to_vector<float>(), reference(values, 16, 1, false, plus));
  EXPECT_EQ(type, "f32[2,16]{i}");
}

}  // namespace
}  // namespace shmap
