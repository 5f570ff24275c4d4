// shmap-test: devices
// vmap in the bodies of mapped functions: every collective, and loops and branches there, against a
// loop over the batch.
#include <gtest/gtest.h>

#include <functional>

#include "shmap/shmap.h"
#include "tests/support/vmap_loop.h"

namespace shmap {
namespace {

using testing::array_diff;
using testing::item_along;
using testing::test_values;

using Body = std::function<Array(Array)>;

// Returns what is wrong with vmap(f) of blocks of 3 x (8, 4), with the batch dimension along
// `axis`, in a body on a 4 x 2 mesh; "" if nothing is.
std::string check_in_body(const Body& f, int axis, ShardMapOptions options) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = test_values(ShapedArray({3, 32, 8}, f32), 5);
  const auto both = shard_map(
      [&](Array block) {
        std::vector<Array> each;
        for (int k = 0; k < 3; ++k) each.push_back(f(item_along(block, 0, k)));
        const Array batch = axis == 0   ? block
                            : axis == 1 ? transpose(block, {1, 0, 2})
                                        : transpose(block, {1, 2, 0});
        return std::pair{stack(each, 0), vmap(f, axis)(batch)};
      },
      mesh, P(none, "i", "j"), P(axes("i", "j")), options);
  std::string problems;
  const auto compare = [&](const std::pair<Array, Array>& results, const char* how) {
    const std::string diff = array_diff(results.first, results.second, 1e-5);
    if (!diff.empty())
      problems += std::string(how) + ", axis " + std::to_string(axis) + ": " + diff + "\n";
  };
  compare(both(x), "eagerly");
  compare(jit(both)(x), "under jit");
  return problems;
}

void expect_as_loop(const char* name, const Body& f) {
  for (const int axis : {0, 1, -1}) EXPECT_EQ(check_in_body(f, axis, {}), "") << name;
  EXPECT_EQ(check_in_body(f, -1, {.check_vma = false}), "") << name << " unchecked";
}

TEST(VmapCollectives, Reductions) {
  expect_as_loop("psum", [](Array x) { return psum(x, "i"); });
  expect_as_loop("psum of both", [](Array x) { return psum(x, {"i", "j"}); });
  expect_as_loop("psum in groups", [](Array x) {
    return psum(x, "i", {.axis_index_groups = {{0, 1}, {2, 3}}});
  });
  expect_as_loop("pmean", [](Array x) { return pmean(x, "j"); });
  expect_as_loop("pmax", [](Array x) { return pmax(x, "i"); });
  expect_as_loop("pmin", [](Array x) { return pmin(x, {"j", "i"}); });
}

TEST(VmapCollectives, Copies) {
  expect_as_loop("pbroadcast", [](Array x) { return pbroadcast(psum(x, "i"), "i") * x; });
  expect_as_loop("casts", [](Array x) { return psum(x, "i") + x; });
  expect_as_loop("ppermute", [](Array x) {
    return ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
  });
  expect_as_loop("broadcast_from", [](Array x) { return broadcast_from(x, "i", 2); });
  expect_as_loop("axis_index", [](Array x) { return x * astype(axis_index("i"), f32); });
}

TEST(VmapCollectives, Gathers) {
  for (const bool tiled : {false, true}) {
    for (int axis = 0; axis < (tiled ? 2 : 3); ++axis) {
      expect_as_loop("all_gather",
                     [=](Array x) { return all_gather(x, "i", {.axis = axis, .tiled = tiled}); });
      expect_as_loop("all_gather_invariant", [=](Array x) {
        return all_gather_invariant(x, "j", {.axis = axis, .tiled = tiled});
      });
    }
  }
}

TEST(VmapCollectives, Scatters) {
  for (const int dim : {0, 1}) {
    expect_as_loop("psum_scatter, tiled", [=](Array x) {
      return psum_scatter(x, "i", {.scatter_dimension = dim, .tiled = true});
    });
    expect_as_loop("pscatter, tiled", [=](Array x) {
      return pscatter(psum(x, "j"), "j", {.scatter_dimension = dim, .tiled = true});
    });
    const auto four = [=](Array x) { return dim == 0 ? transpose(x) : x; };
    expect_as_loop("psum_scatter",
                   [=](Array x) { return psum_scatter(four(x), "i", {.scatter_dimension = dim}); });
    expect_as_loop("pscatter", [=](Array x) {
      return pscatter(psum(four(x), "i"), "i", {.scatter_dimension = dim});
    });
  }
}

TEST(VmapCollectives, Exchanges) {
  for (const int split : {0, 1})
    for (const int concat : {0, 1}) {
      expect_as_loop("all_to_all, tiled",
                     [=](Array x) { return all_to_all(x, "i", split, concat, {.tiled = true}); });
      expect_as_loop("all_to_all", [=](Array x) {
        return all_to_all(split == 0 ? transpose(x) : x, "i", split, concat);
      });
    }
  expect_as_loop("pswapaxes", [](Array x) { return pswapaxes(x, "i", 1); });
}

TEST(VmapCollectives, LoopsAndBranches) {
  // The predicate differs among the elements of the batch, among devices, or both.
  expect_as_loop("cond", [](Array x) {
    return cond(
        sum(x) > 16.f, [](Array a) { return a * 2.f; }, [](Array a) { return a - 1.f; }, x);
  });
  expect_as_loop("cond that is the same on all devices", [](Array x) {
    return cond(
        psum(sum(x), {"i", "j"}) > 128.f, [](Array a) { return psum(a, "i"); },
        [](Array a) { return psum(a * 2.f, "i"); }, x);
  });
  expect_as_loop("cond of a device's rank", [](Array x) {
    return cond(
        axis_index("i") > 1, [](Array a) { return a * 2.f; }, [](Array a) { return a - 1.f; }, x);
  });
  expect_as_loop("while_loop", [](Array x) {
    return while_loop([](Array a) { return sum(a) < 40.f; }, [](Array a) { return a * 1.5f; }, x);
  });
  expect_as_loop("scan", [](Array x) {
    return scan(
               [](Array c, Array row) {
                 return std::pair{c + psum(row, "j"), c * row};
               },
               zeros({4}), x)
        .second;
  });
  expect_as_loop("fori_loop up to a device's rank", [](Array x) {
    return fori_loop(
        0, axis_index("i"), [](Array, Array a) { return a * 2.f; }, x);
  });
}

TEST(VmapCollectives, JitInABody) {
  expect_as_loop("jit", [](Array x) { return jit([](Array a) { return psum(a, "i") * a; })(x); });
}

// Gradients of bodies that map, of mapped functions under vmap, and of both.
TEST(VmapCollectives, Derivatives) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto one = [](Array a, Array w) {
    return psum(tanh(a * w) * all_gather(sum(a), "j", {.tiled = false})[0], "i");
  };
  const auto mapping = shard_map(
      [=](Array x, Array w) {
        return psum(sum(vmap(one, {0, none})(x, w)), {"i", "j"});
      },
      mesh, {P(none, "i", "j"), P("i", "j")}, P());
  const auto looping = shard_map(
      [=](Array x, Array w) {
        Array total = 0.f;
        for (int k = 0; k < 3; ++k) total = total + sum(one(item_along(x, 0, k), w));
        return psum(total, {"i", "j"});
      },
      mesh, {P(none, "i", "j"), P("i", "j")}, P());
  const Array x = test_values(ShapedArray({3, 8, 4}, f32), 1);
  const Array w = test_values(ShapedArray({8, 4}, f32), 2);
  const std::tuple<Array, Array> want = grad<0, 1>(looping)(x, w);
  const auto expect_same = [&](const std::tuple<Array, Array>& got) {
    EXPECT_EQ(array_diff(std::get<0>(want), std::get<0>(got), 1e-4), "");
    EXPECT_EQ(array_diff(std::get<1>(want), std::get<1>(got), 1e-4), "");
  };
  expect_same(grad<0, 1>(mapping)(x, w));
  expect_same(jit(grad<0, 1>(mapping))(x, w));
  expect_same(grad<0, 1>(jit(mapping))(x, w));
  // vmap around the gradient, of a batch of weights.
  const Array ws = test_values(ShapedArray({2, 8, 4}, f32), 3);
  const auto gradients = vmap(grad<1>(mapping), {none, 0});
  for (const Array& got : {gradients(x, ws), jit(gradients)(x, ws)})
    for (int k = 0; k < 2; ++k) EXPECT_EQ(array_diff(grad<1>(looping)(x, ws[k]), got[k], 1e-4), "");
}

TEST(VmapCollectives, WithoutCasts) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto body = [](Array x) {
    return vmap([](Array a) { return pbroadcast(psum(a, "i"), "i") + a; })(x);
  };
  const auto f = shard_map(body, mesh, P("i", "j"), P("i", "j"), {.auto_pbroadcast = false});
  const auto casting = shard_map(body, mesh, P("i", "j"), P("i", "j"));
  const Array x = test_values(ShapedArray({8, 4}, f32), 1);
  EXPECT_EQ(array_diff(casting(x), f(x), 0), "");
  EXPECT_EQ(array_diff(casting(x), jit(f)(x), 0), "");
  const auto mixed =
      shard_map([](Array x) { return vmap([](Array a) { return psum(a, "i") + a; })(x); }, mesh,
                P("i", "j"), P("i", "j"), {.auto_pbroadcast = false});
  EXPECT_THROW(mixed(x), TypeError);
}

TEST(VmapCollectives, CommunicateOnceForAll) {
  const Mesh mesh = make_mesh({8}, {"i"});
  const auto f = shard_map([](Array x) { return vmap([](Array a) { return psum(a, "i"); })(x); },
                           mesh, P(none, "i"), P());
  const Array x = test_values(ShapedArray({5, 16}, f32), 1);
  reset_counters();
  f(x);
  EXPECT_EQ(counters().collectives, 1);
}

}  // namespace
}  // namespace shmap
