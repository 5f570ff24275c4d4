// shmap-test: devices
// vmap against JAX's values: eagerly, under jit and of sharded arrays.
#include <gtest/gtest.h>

#include <map>

#include "shmap/shmap.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using Arrays = std::vector<Array>;
using Program = std::function<Arrays(Arrays)>;

Array loss(Array w, Array x) { return sum(tanh(w * x) * x); }

std::map<std::string, Program> programs() {
  std::map<std::string, Program> all;
  const auto affine = [](Array w, Array b, Array x) { return matmul(w, x) + b; };
  all["affine"] = [=](Arrays x) { return Arrays{vmap(affine, {none, none, 0})(x[0], x[1], x[2])}; };
  all["affine_each"] = [=](Arrays x) {
    return Arrays{vmap(affine, {0, 1, none}, 1)(x[0], x[1], x[2])};
  };
  all["distances"] = [](Arrays x) {
    const auto one = [](Array a, Array b) { return sum(square(a - b)); };
    return Arrays{vmap(vmap(one, {none, 0}), {0, none})(x[0], x[0])};
  };
  all["out_last"] = [](Arrays x) {
    const auto [y, s] = vmap(
        [](Array a) {
          return std::pair{a * 2, sum(a, 0)};
        },
        -1, {-1, 0})(x[0]);
    return Arrays{y, s};
  };
  all["sorted"] = [](Arrays x) {
    const auto one = [](Array a, Array k) { return Arrays{sort(a), argmax(a), a[k]}; };
    return vmap(one, {1, 0})(x[0], x[1]);
  };
  all["slices"] = [](Arrays x) {
    const auto one = [](Array a, Array k) { return dynamic_slice(a, {k}, {2}); };
    return Arrays{vmap(one, {none, 0})(x[0], x[1])};
  };
  all["slices_each"] = [](Arrays x) {
    const auto one = [](Array a, Array k) { return dynamic_slice(a, {k, 0}, {1, 2}); };
    return Arrays{vmap(one)(x[0], x[1])};
  };
  all["updates"] = [](Arrays x) {
    const auto one = [](Array a, Array u, Array k) { return dynamic_update_slice(a, u, {k}); };
    return Arrays{vmap(one, {none, 0, 0})(x[0], x[1], x[2])};
  };
  all["halvings"] = [](Arrays x) {
    const auto one = [](Array n) {
      return while_loop([](Arrays c) { return c[0] > 1; },
                        [](Arrays c) {
                          return Arrays{floor_divide(c[0], 2), c[1] + 1};
                        },
                        Arrays{n, array({0}, Shape({}))});
    };
    return vmap(one)(x[0]);
  };
  all["branches"] = [](Arrays x) {
    const auto one = [](Array p, Array a) {
      return cond(
          p > 0, [](Array b) { return b * 2; }, [](Array b) { return cumsum(b, 0); }, a);
    };
    return Arrays{vmap(one)(x[0], x[1])};
  };
  all["scan"] = [](Arrays x) {
    const auto one = [](Array c, Array xs) {
      return scan([](Array s, Array v) { return std::pair{s * 2 + v, s}; }, c, xs);
    };
    const auto [c, ys] = vmap(one, {0, none})(x[0], x[1]);
    return Arrays{c, ys};
  };
  all["gradients"] = [](Arrays x) { return Arrays{vmap(grad(loss), {none, 0})(x[0], x[1])}; };
  all["gradient_of_mean"] = [](Arrays x) {
    const auto total = [](Array w, Array v) { return mean(vmap(loss, {none, 0})(w, v)); };
    return Arrays{grad(total)(x[0], x[1])};
  };
  // Row by row of the gradient's derivative.
  all["hessian"] = [](Arrays x) {
    const auto one = [](Array w, Array v) {
      const auto column = [&](Array e) {
        return jvp([&](Array u) { return grad(loss)(u, v); }, std::tuple{w}, std::tuple{e}).second;
      };
      return vmap(column)(eye(3));
    };
    return Arrays{vmap(one, {none, 0})(x[0], x[1])};
  };
  return all;
}

TEST(GoldenVmap, Eager) {
  const auto all = programs();
  testing::expect_golden(
      "vmap", [&](const testing::GoldenCase& c, const Arrays& in) { return all.at(c.name)(in); });
}

TEST(GoldenVmap, UnderJit) {
  const auto all = programs();
  testing::expect_golden("vmap", [&](const testing::GoldenCase& c, const Arrays& in) {
    const auto f = jit(all.at(c.name));
    f(in);
    f(in);
    return f(in);
  });
}

TEST(GoldenVmap, OfShardedArrays) {
  const auto all = programs();
  testing::expect_golden(
      "vmap", [&](const testing::GoldenCase& c, const Arrays& in) { return all.at(c.name)(in); },
      testing::split_over_mesh, test::Communication::no_more);
}

}  // namespace
}  // namespace shmap
