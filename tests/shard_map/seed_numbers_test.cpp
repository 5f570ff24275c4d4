// shmap-test: devices
// The examples of JEP 14273 with their numbers, which are exact in f32. Eagerly, and the same under
// jit.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <numeric>

#include "tests/support/under_jit.h"

namespace shmap {
namespace {

Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }

Array iota_f32(Shape shape) { return reshape(arange(shape.num_elements()), shape); }

// Returns f(args...), after a check that jit gives the same.
template <class F, class... A>
auto run(F f, const A&... args) {
  return test::expect_same_under_jit(f, test::Communication::same, args...);
}

float at(const Array& x, std::int64_t r, std::int64_t c) { return x[{r, c}].item<float>(); }

TEST(SeedNumbers, MatmulBasic) {
  const Array a = iota_f32({8, 16}), b = iota_f32({16, 32});
  std::string a_type, b_type, product_type, result_type;
  auto matmul_basic = shard_map(
      [&](Array a_block, Array b_block) {
        a_type = to_string(a_block.type());
        b_type = to_string(b_block.type());
        const Array z = matmul(a_block, b_block);
        product_type = to_string(z.type());
        const Array c = psum(z, "j");
        result_type = to_string(c.type());
        return c;
      },
      mesh42(), {P("i", "j"), P("j", none)}, P("i", none));
  const Array c = run(matmul_basic, a, b);
  EXPECT_EQ(a_type, "f32[2,8]{i,j}");
  EXPECT_EQ(b_type, "f32[8,32]{j}");
  EXPECT_EQ(product_type, "f32[2,32]{i,j}");
  EXPECT_EQ(result_type, "f32[2,32]{i}");
  EXPECT_EQ(to_string(c.type()), "f32[8,32]");
  EXPECT_EQ(c.sharding(), NamedSharding(mesh42(), P("i", none)));
  EXPECT_EQ(at(c, 0, 0), 39680);
  EXPECT_EQ(at(c, 7, 31), 529032);
  EXPECT_EQ(at(c, 3, 17), 239096);
  EXPECT_EQ(sum(astype(c, f64)).item<double>(), 69239808);
  EXPECT_TRUE(all(c == matmul(a, b)).item<bool>());
}

TEST(SeedNumbers, MatmulReduceScatter) {
  const Array a = iota_f32({8, 16}), b = iota_f32({16, 32});
  std::string block_type;
  auto f = shard_map(
      [&](Array a_block, Array b_block) {
        const Array c =
            psum_scatter(matmul(a_block, b_block), "j", {.scatter_dimension = 1, .tiled = true});
        block_type = to_string(c.type());
        return c;
      },
      mesh42(), {P("i", "j"), P("j", none)}, P("i", "j"));
  const Array c = run(f, a, b);
  EXPECT_EQ(block_type, "f32[2,16]{i,j}");
  EXPECT_TRUE(all(c == matmul(a, b)).item<bool>());
  EXPECT_EQ(c.addressable_shards()[0].data.shape(), (Shape{2, 16}));
}

TEST(SeedNumbers, F1SplitsRowsAndTilesColumns) {
  const Array x = iota_f32({12, 12});
  Shape seen;
  auto f1 = shard_map(
      [&](Array block) {
        seen = block.shape();
        return block;
      },
      mesh42(), P("i", none), P("i", "j"));
  const Array y = run(f1, x);
  EXPECT_EQ(seen, (Shape{3, 12}));
  EXPECT_EQ(y.shape(), (Shape{12, 24}));
  EXPECT_TRUE(all(y == tile(x, {1, 2})).item<bool>());

  auto f2 = shard_map([](Array block) { return block; }, mesh42(), P("i", "j"), P("i", "j"));
  EXPECT_TRUE(all(run(f2, tile(x, {1, 2})) == y).item<bool>());
}

TEST(SeedNumbers, TilingTheOtherWayGivesTheSameBlocks) {
  const Array x = iota_f32({12, 12});
  auto by_rows = shard_map([](Array b) { return b; }, mesh42(), P("i", none), P("i", "j"));
  auto by_both =
      shard_map([](Array b) { return b; }, mesh42(), P(axes("j", "i"), none), P("i", "j"));
  EXPECT_TRUE(all(run(by_rows, x) == run(by_both, tile(x, {2, 1}))).item<bool>());
}

TEST(SeedNumbers, F3SumsOverJ) {
  auto f = shard_map([](Array b) { return psum(b, "j"); }, mesh42(), P("i", "j"), P("i", none));
  const Array y = run(f, iota_f32({12, 12}));
  ASSERT_EQ(y.shape(), (Shape{12, 6}));
  EXPECT_EQ(at(y, 0, 0), 6);
  EXPECT_EQ(at(y, 11, 5), 280);
}

TEST(SeedNumbers, F4SumsOverI) {
  auto f = shard_map([](Array b) { return psum(b, "i"); }, mesh42(), P("i", "j"), P(none, "j"));
  const Array y = run(f, iota_f32({12, 12}));
  ASSERT_EQ(y.shape(), (Shape{3, 12}));
  EXPECT_EQ(at(y, 0, 0), 216);
  EXPECT_EQ(at(y, 2, 11), 356);
}

TEST(SeedNumbers, F5SumsOverBoth) {
  auto f = shard_map(
      [](Array b) {
        return psum(b, {"i", "j"});
      },
      mesh42(), P("i", "j"), P(none, none));
  const Array y = run(f, iota_f32({12, 12}));
  ASSERT_EQ(y.shape(), (Shape{3, 6}));
  EXPECT_EQ(at(y, 0, 0), 456);
  EXPECT_EQ(at(y, 2, 5), 688);
}

TEST(SeedNumbers, ZeroArgumentsUntileAndTile) {
  const Array x = array<float>({3}, {1, 1});
  const auto call = [&](P out) { return run(shard_map([&] { return x; }, mesh42(), {}, out)); };
  EXPECT_TRUE(all(call(P("i", "j")) == tile(x, {4, 2})).item<bool>());
  EXPECT_EQ(call(P("i", "j")).shape(), (Shape{4, 2}));
  EXPECT_EQ(call(P("i", none)).shape(), (Shape{4, 1}));
  EXPECT_EQ(call(P(none, none)).shape(), (Shape{1, 1}));
  EXPECT_EQ(call(P()).item<float>(), 3);
}

TEST(SeedNumbers, BlockTranspose) {
  const Array x = iota_f32({12, 12});
  auto f = shard_map([](Array b) { return b; }, mesh42(), P("i", "j"), P("j", "i"));
  const Array y = run(f, x);
  ASSERT_EQ(y.shape(), (Shape{6, 24}));
  const std::vector<float> got = y.to_vector<float>();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 2; ++j)
      for (int r = 0; r < 3; ++r)
        for (int c = 0; c < 6; ++c)
          ASSERT_EQ(got[static_cast<std::size_t>((3 * j + r) * 24 + 6 * i + c)],
                    (3 * i + r) * 12 + 6 * j + c);
}

// The collective matmul of the seed on int32, which wraps: 4096 × 2048 by 2048 × 1024 with K whole
// and fewer rows, so that the rows named are exact.
TEST(SeedNumbers, CollectiveMatmulWrapsInInt32) {
  const std::int64_t K = 2048, N = 1024;
  const std::vector<std::int64_t> rows = {0, 1, 2048, 4095, 2, 3, 4, 5};
  std::vector<std::int32_t> lhs;
  for (std::int64_t r : rows)
    for (std::int64_t k = 0; k < K; ++k) lhs.push_back(static_cast<std::int32_t>(r * K + k));
  const Mesh ring = make_mesh({8}, "i");
  const Array A = device_put(array<std::int32_t>(lhs, {8, K}), NamedSharding(ring, P("i", none)));
  const Array B = reshape(arange(K * N, i32), {K, N});
  auto body = [](Array lhs, Array rhs) {
    const int n = psum(1, "i");
    const Array index = axis_index("i");
    const auto chunk = lhs.shape()[0];
    std::vector<std::pair<int, int>> left;
    for (int j = 0; j < n; ++j) left.push_back({j, (j + n - 1) % n});
    Array accum = zeros({chunk * n, rhs.shape()[1]}, lhs.dtype());
    for (int i = 0; i < n; ++i) {
      const Array update = matmul(lhs, rhs);
      if (i + 1 < n) lhs = ppermute(lhs, "i", left);
      accum = dynamic_update_slice(std::move(accum), update, {(index + i) % n * chunk, 0});
    }
    return accum;
  };
  // A ppermute's result varies, so the replicated out_spec needs the check off.
  EXPECT_THROW(shard_map(body, ring, {P("i", none), P()}, P())(A, B), ValueError);
  const Array C = run(shard_map(body, ring, {P("i", none), P()}, P(), {.check_vma = false}), A, B);
  const auto entry = [&](std::int64_t r, std::int64_t c) { return C[{r, c}].item<std::int32_t>(); };
  EXPECT_EQ(entry(0, 0), 716177408);
  EXPECT_EQ(entry(0, 1), 718273536);
  EXPECT_EQ(entry(1, 0), -1431306240);
  EXPECT_EQ(entry(2, 512), 1789394944);
  EXPECT_EQ(entry(3, 1023), 717227008);
}

}  // namespace
}  // namespace shmap
