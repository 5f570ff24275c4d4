// shmap-test: devices
// Random orthogonal matrices: of any size, in bodies, under jit and vmap. (golden_random_test holds
// them against JAX's.)
#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;

// The greatest |x^T x - 1|, or of the rows where they are fewer.
double defect(Array x) {
  if (x.shape()[-2] < x.shape()[-1]) x = swapaxes(x, -1, -2);
  x = astype(x, f64);
  const Array gram = matmul(swapaxes(x, -1, -2), x);
  return max(abs(gram - eye(x.shape()[-1], f64))).item<double>();
}

TEST(Orthogonal, MatricesOfAnySize) {
  const Array key = random::key(1);
  for (const auto& [n, m] : {std::pair{1, 1}, {2, 2}, {33, 33}, {100, 70}, {40, 100}, {130, 130}}) {
    const Array x = random::orthogonal(key, n, {}, f32, m),
                y = random::orthogonal(key, n, {}, f64, m);
    EXPECT_EQ(x.type(), ShapedArray({n, m}, f32));
    EXPECT_LT(defect(x), 1e-5) << n << " x " << m;
    EXPECT_LT(defect(y), 2e-14) << n << " x " << m;
  }
  EXPECT_EQ(random::orthogonal(key, 3, {2, 0}).shape(), Shape({2, 0, 3, 3}));
  EXPECT_EQ(random::orthogonal(key, 0, {}, f32, 4).shape(), Shape({0, 4}));
  EXPECT_EQ(random::orthogonal(key, 5, {4}).shape(), Shape({4, 5, 5}));
  EXPECT_LT(defect(random::orthogonal(key, 5, {4})), 2e-6);
}

TEST(Orthogonal, UnderTransforms) {
  const Array keys = random::split(random::key(2), 4);
  const auto draw = [](Array k) { return random::orthogonal(k, 36, {}, f64); };
  const Array want = stack({draw(keys[0]), draw(keys[1]), draw(keys[2]), draw(keys[3])});
  const auto near = [&](const Array& got) {
    EXPECT_LT(max(abs(got - want)).item<double>(), 1e-12);
  };
  near(vmap(draw)(keys));
  near(jit(vmap(draw))(keys));
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto body = [&](Array k) { return expand_dims(draw(k[0]), 0); };
  near(shard_map(body, mesh, P("i"), P("i"))(keys));
  near(jit(shard_map(body, mesh, P("i"), P("i")))(keys));
}

TEST(Orthogonal, SaysWhatIsWrong) {
  const Array key = random::key(0);
  expect_error<TypeError>([&] { random::orthogonal(key, 3, {}, bf16); },
                          {"orthogonal", "bf16", "f32 or f64", "orthogonal_test.cpp"});
  expect_error<ValueError>([&] { random::orthogonal(key, -1); }, {"orthogonal", "-1 rows"});
  expect_error<ValueError>([&] { random::orthogonal(random::split(key), 3); },
                           {"orthogonal", "one key is wanted"});
}

}  // namespace
}  // namespace shmap
