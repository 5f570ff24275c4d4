// shmap-test: devices
// Random programs under vmap, nested and in derivatives, compared with loops over the batch. The
// position of the batch dimension changes from op to op.
#include <gtest/gtest.h>

#include <random>

#include "shmap/shmap.h"
#include "tests/support/vmap_loop.h"

namespace shmap {
namespace {

using testing::array_diff;
using testing::check_vmap;
using testing::test_values;
using Arrays = std::vector<Array>;

// A program of smooth ops on x: f32[3,4] and y: f32[4], drawn by the seed; all values stay small.
// while_loops, of which there is no gradient, are among them where `loops` is true.
Arrays random_program(unsigned seed, Array x, Array y, bool loops = true) {
  std::mt19937 random(seed);
  std::vector<Array> matrices{x}, vectors{y};
  const auto any = [&](const std::vector<Array>& of) { return of[random() % of.size()]; };
  for (int k = 0; k < 8; ++k) {
    const Array a = any(matrices), b = any(matrices), u = any(vectors), v = any(vectors);
    switch (random() % (loops ? 16 : 15)) {
      case 0:
        matrices.push_back(tanh(a) * b);
        break;
      case 1:
        matrices.push_back(a * u - b);
        break;
      case 2:
        vectors.push_back(mean(a, 0) + v);
        break;
      case 3:
        vectors.push_back(tanh(matmul(matmul(u, transpose(a)), b)));
        break;
      case 4:
        matrices.push_back(softmax(transpose(reshape(a, {4, 3})), 0));
        break;
      case 5:
        matrices.push_back(where(a > u, a, b * 0.5f));
        break;
      case 6:
        matrices.push_back(slice(concatenate({a, b}, 1), {0, 2}, {3, 6}));
        break;
      case 7:
        vectors.push_back(sort(u) * sum(v));
        break;
      case 8:
        vectors.push_back(dynamic_index_in_dim(a, argmax(sum(b, 1)), 0, false));
        break;
      case 9:
        matrices.push_back(dynamic_update_slice(a, reshape(slice(u, {0}, {2}), {1, 2}),
                                                {argmin(sum(b, 1)), argmax(v)}));
        break;
      case 10:
        matrices.push_back(flip(cumsum(a, 1), 0) * 0.3f);
        break;
      case 11:
        matrices.push_back(tanh(matmul(matmul(a, transpose(b)), a)));
        break;
      case 12:
        vectors.push_back(take(u, argmax(a, 1))[0] * v);
        break;
      case 13:
        vectors.push_back(cond(
            sum(u) > sum(v), [](Array p, Array) { return p * 2.f; },
            [](Array p, Array q) { return p * q; }, u, v));
        break;
      case 14:
        vectors.push_back(scan(
                              [](Array c, Array row) {
                                return std::pair{tanh(c + row), c};
                              },
                              u, a)
                              .first);
        break;
      default:
        vectors.push_back(while_loop([](Array c) { return sum(abs(c)) < 3.f; },
                                     [](Array c) { return c * 1.5f; }, abs(u) + 0.1f));
    }
  }
  return {matrices.back(), vectors.back(), sum(matrices.back() * vectors.back())};
}

TEST(VmapProperty, RandomProgramsAreAsLoops) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const auto program = [seed](const Arrays& in) { return random_program(seed, in[0], in[1]); };
    const ShapedArray x({3, 4}, f32), y({4}, f32);
    for (const std::vector<int>& axes :
         {std::vector{0, 0}, {2, 1}, {1, testing::kUnmapped}, {testing::kUnmapped, -1}})
      EXPECT_EQ(check_vmap({"seed " + std::to_string(seed), program, {x, y}, 2e-4}, axes, 3), "");
  }
}

TEST(VmapProperty, Nested) {
  // The inner one maps the last dim of x, the outer one the last of y.
  const Array x = test_values(ShapedArray({3, 4, 2}, f32), 1);
  const Array y = test_values(ShapedArray({4, 3}, f32), 2);
  for (unsigned seed = 0; seed < 30; ++seed) {
    const auto f = [seed](Array a, Array b) { return random_program(seed, a, b); };
    const Arrays got = vmap(vmap(f, {2, none}, -1), {none, 1})(x, y);
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 2; ++j) {
        const Arrays want = f(testing::item_along(x, 2, j), testing::item_along(y, 1, i));
        for (std::size_t o = 0; o < want.size(); ++o) {
          const Array here = got[o][i];
          EXPECT_EQ(array_diff(want[o], testing::item_along(here, here.ndim() - 1, j), 2e-4), "")
              << "seed " << seed;
        }
      }
  }
}

TEST(VmapProperty, GradientsOfRandomPrograms) {
  const Array xs = test_values(ShapedArray({3, 3, 4}, f32), 1);
  const Array y = test_values(ShapedArray({4}, f32), 2);
  for (unsigned seed = 0; seed < 30; ++seed) {
    const auto f = [seed](Array a, Array b) { return random_program(seed, a, b, false)[2]; };
    std::vector<Array> each;
    for (int k = 0; k < 3; ++k) each.push_back(grad(f)(xs[k], y));
    const Array want = stack(each, 0);
    EXPECT_EQ(array_diff(want, vmap(grad(f), {0, none})(xs, y), 1e-3), "") << seed;
    const auto total = [&](Array all) { return sum(vmap(f, {0, none})(all, y)); };
    EXPECT_EQ(array_diff(want, grad(total)(xs), 1e-3), "") << seed;
    EXPECT_EQ(array_diff(want, jit(grad(total))(xs), 1e-3), "") << seed;
  }
}

}  // namespace
}  // namespace shmap
