// shmap-test: devices
// What transforms take as a function, and how they call it: generic lambdas, members, trees.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using Floats = std::vector<float>;

// A generic lambda whose body fits arrays alone: to compile it for another type is an error.
const auto twice = [](auto x) {
  auto y = x * 2.f;
  y += x.shape().empty() ? 0.f : 1.f;
  return y;
};

TEST(Callables, GenericLambdasAreCompiledForArraysAlone) {
  const Array x = arange(3);
  const Floats wanted{1, 3, 5};
  EXPECT_EQ(jit(twice)(x).to_vector<float>(), wanted);
  EXPECT_EQ(jit(jit(twice))(x).to_vector<float>(), wanted);
  EXPECT_EQ(jit([](auto a) { return a * 2.f + 1.f; })(x).to_vector<float>(), wanted);
  EXPECT_EQ(checkpoint(twice)(x).to_vector<float>(), wanted);
  EXPECT_EQ(vmap(twice)(x).to_vector<float>(), (Floats{0, 2, 4}));
  EXPECT_EQ(vmap([](auto a) { return -a; }, 0, 0)(x).to_vector<float>(), (Floats{0, -1, -2}));
  EXPECT_EQ(jit(grad([](auto a) { return a * a; }))(3.f).item<float>(), 6);
  EXPECT_EQ(cond(true, twice, twice, x).to_vector<float>(), wanted);
}

struct Model {
  Array w;
  Array forward(Array x) const { return x * w; }
};

TEST(Callables, PointersToMembersAreCalledOnTheFirstArgument) {
  const Model model{arange(3)};
  EXPECT_EQ(jit(&Model::forward)(model, 2.f).to_vector<float>(), (Floats{0, 2, 4}));
  EXPECT_EQ(vmap(&Model::forward, {0, none})(model, 3.f).to_vector<float>(), (Floats{0, 3, 6}));
  const auto mapped = shard_map(&Model::forward, make_mesh({2}, "i"), P("i"), P("i"));
  EXPECT_EQ(mapped(Model{arange(4)}, arange(4)).to_vector<float>(), (Floats{0, 1, 4, 9}));
}

struct Step {
  float rate;
  Array w;
  std::string name;
  Array b;
};

TEST(Trees, AListForAStructMayNameItsStaticMembersToo) {
  const Mesh mesh = make_mesh({2}, "i");
  const Step step{2.f, arange(4), "w", arange(3)};
  const auto scaled = [](Step s) { return s.w * s.rate + sum(s.b); };
  const Floats wanted{3, 5, 7, 9};
  for (const Specs& in : {Specs{{P("i"), P()}}, Specs{{P(), P("i"), P(), P()}}}) {
    EXPECT_EQ(shard_map(scaled, mesh, in, P("i"))(step).to_vector<float>(), wanted);
  }
  const auto same =
      shard_map([](Step s) { return s; }, mesh, P(), {P(), P("i"), P(), P()}, {.check_vma = false});
  EXPECT_EQ(same(step).w.sharding(), NamedSharding(mesh, P("i")));
  EXPECT_EQ(same(step).name, "w");
  expect_error<ValueError>(
      [&] {
        shard_map(scaled, mesh, {{P(), P(), P()}}, P("i"))(step);
      },
      {"in_specs[0]", "3 entries", "a struct of 2"});
  // Paths number a struct's members, static ones too.
  expect_error<ValueError>([&] { shard_map(scaled, mesh, P("i"), P("i"))(step); },
                           {"args[0].field(3)"});
  const auto product = [](Step s) { return s.w * sum(s.b) * s.rate; };
  EXPECT_EQ(vmap(product, {{none, 0, none, none}})(step).to_vector<float>(),
            (Floats{0, 6, 12, 18}));
  EXPECT_EQ(vmap(product, {{0, none}})(step).to_vector<float>(), (Floats{0, 6, 12, 18}));
}

TEST(Trees, MapCallsAFunctionWithTheLeavesOfAllTrees) {
  using Params = std::map<std::string, std::vector<Array>>;
  const Params params{{"w", {arange(2), ones({})}}, {"b", {}}};
  const Params moved = tree_map([](Array p, Array g) { return p - 0.5f * g; }, params, params);
  EXPECT_EQ(moved.at("w")[0].to_vector<float>(), (Floats{0, 0.5f}));
  EXPECT_EQ(moved.at("w")[1].item<float>(), 0.5f);
  EXPECT_TRUE(moved.at("b").empty());
  EXPECT_EQ(tree_map([](auto x) { return x * 2.f; }, 3.f).item<float>(), 6);
  const auto [a, b] = tree_map([](Array x, Array y, Array z, Array w) { return x + y * z - w; },
                               std::tuple{arange(2), 1.f}, std::pair{arange(2), 2.f},
                               std::tuple{arange(2), 3.f}, std::pair{ones({2}), 4.f});
  EXPECT_EQ(a.to_vector<float>(), (Floats{-1, 1}));
  EXPECT_EQ(b.item<float>(), 3);
  const Step step = tree_map([](Array x) { return x + 1.f; }, Step{2.f, arange(1), "w", ones({1})});
  EXPECT_EQ(step.name + to_string(step.w.shape()), "w(1,)");
  EXPECT_EQ(step.b.item<float>(), 2);
  // Under a transform too.
  const auto descend =
      jit([](Params p) { return tree_map([](Array x, Array g) { return x - g; }, p, p); });
  EXPECT_EQ(descend(params).at("w")[0].to_vector<float>(), (Floats{0, 0}));
}

TEST(Trees, MapRefusesTreesOfUnlikeStructures) {
  const std::vector<Array> one{arange(2)}, two{arange(2), arange(2)};
  const auto add = [](Array x, Array y) { return x + y; };
  expect_error<ValueError>(
      [&] { tree_map(add, one, two); },
      {"tree_map", "trees[1] has the structure [*, *]", "trees[0] has [*]", "callables_test.cpp"});
  const auto three = [](Array x, Array, Array z) { return x + z; };
  expect_error<ValueError>([&] { tree_map(three, one, one, arange(2)); },
                           {"trees[2] has the structure *"});
}

TEST(Trees, MapDonatesRvalues) {
  std::vector<Array> params{arange(1024)};
  params[0].block_until_ready();
  reset_counters();
  params = tree_map([](Array x) { return std::move(x) + 1.f; }, std::move(params));
  EXPECT_EQ(params[0][1].item<float>(), 2);
  EXPECT_LE(counters().allocations, 1);  // the element that is read
}

}  // namespace
}  // namespace shmap
