// shard-mapped functions under vmap, and vmap in their bodies, against a loop over the batch.
#include <gtest/gtest.h>

#include <cmath>

#include "shmap/shmap.h"

namespace shmap {
namespace {

Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }

// 8 x 4 blocks of 2 x 2; a collective of each kind, and a value closed over.
Array body(const Array& x, const Array& w) {
  const Array s = psum(x, "i");
  const Array g = all_gather(x, "j", {.axis = 1, .tiled = true});
  const Array r = ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
  return sin(x) * s + matmul(g, transpose(g)) + r * w;
}

auto mapped() {
  return shard_map([](Array x, Array w) { return body(x, w); }, mesh42(), {P("i", "j"), P()},
                   P("i", "j"));
}

Array batch_of_blocks(int n) { return reshape(arange(n * 32) / 40.f, {n, 8, 4}); }

template <class F>
Array looped(F f, const Array& xs, int axis = 0) {
  std::vector<Array> out;
  for (const Array& x : unstack(xs)) out.push_back(f(x));
  return stack(out, axis);
}

void expect_near(const Array& got, const Array& want) {
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<float> a = got.to_vector<float>(), b = want.to_vector<float>();
  for (std::size_t k = 0; k < a.size(); ++k)
    ASSERT_NEAR(a[k], b[k], 1e-4f * (1 + std::abs(b[k]))) << k;
}

TEST(VmapShardMap, GivesWhatALoopGives) {
  const Array xs = batch_of_blocks(3), w = array<float>({0.5f, 2.f, 1.f, 3.f}, {2, 2});
  const auto f = [&](Array x) { return mapped()(x, w); };
  const Array want = looped(f, xs);
  expect_near(vmap(f)(xs), want);
  expect_near(jit(vmap(f))(xs), want);
  expect_near(vmap(jit(f))(xs), want);
  expect_near(vmap(f, 2, 1)(transpose(xs, {1, 2, 0})), swapaxes(want, 0, 1));
}

TEST(VmapShardMap, BodiesMayCloseOverBatchedValues) {
  const Array xs = batch_of_blocks(3), w = array<float>({1.f, 2.f, 3.f}, {3});
  const auto f = [](Array x, Array scale) {
    return shard_map([&](Array b) { return psum(b * scale, "i"); }, mesh42(), P("i", "j"),
                     P(none, "j"))(x);
  };
  std::vector<Array> want;
  for (int k = 0; k < 3; ++k) want.push_back(f(xs[k], w[k]));
  expect_near(vmap(f)(xs, w), stack(want));
  expect_near(jit(vmap(f))(xs, w), stack(want));
}

TEST(VmapShardMap, InABodyWorksOnBlocks) {
  const Array x = reshape(arange(32) / 7.f, {8, 4});
  const auto one = [](Array row) { return psum(sin(row), "i") * row; };
  const auto f =
      shard_map([&](Array b) { return vmap(one)(b); }, mesh42(), P("i", "j"), P("i", "j"));
  const auto g = shard_map(
      [&](Array b) {
        std::vector<Array> rows;
        for (const Array& row : unstack(b)) rows.push_back(one(row));
        return stack(rows);
      },
      mesh42(), P("i", "j"), P("i", "j"));
  expect_near(f(x), g(x));
  expect_near(jit(f)(x), g(x));
}

TEST(VmapShardMap, OfGradientsAndGradientsOfIt) {
  const Array xs = batch_of_blocks(3), w = array<float>({0.5f, 2.f, 1.f, 3.f}, {2, 2});
  const auto loss = [&](Array x) { return sum(square(mapped()(x, w))); };
  const Array want = looped(grad(loss), xs);
  expect_near(vmap(grad(loss))(xs), want);
  expect_near(jit(vmap(grad(loss)))(xs), want);
  expect_near(grad([&](Array all) { return sum(vmap(loss)(all)); })(xs), want);
}

}  // namespace
}  // namespace shmap
