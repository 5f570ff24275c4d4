// shmap-test: devices
// Every collective against JAX's values and result types: over one and several axes, in both
// orders, tiled and untiled, in groups. Eagerly, and the same under jit.
#include <gtest/gtest.h>

#include <map>

#include "shmap/collectives.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/golden_array.h"
#include "tests/support/golden_mesh.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using testing::GoldenCase;
using testing::GoldenParams;

Groups groups(const GoldenParams& p) {
  Groups out;
  if (!p.has("groups")) return out;
  for (const auto& group : p.int_lists("groups")) out.emplace_back(group.begin(), group.end());
  return out;
}

Axes axes_of(const GoldenParams& p) { return Axes(p.texts("axes")); }
int axis_of(const GoldenParams& p) { return static_cast<int>(p.integer_or("axis", 0)); }
bool tiled(const GoldenParams& p) { return p.flag_or("tiled", false); }

using Body = Array (*)(const Array&, const GoldenParams&);
const std::map<std::string, Body>& collectives() {
  using A = const Array&;
  using G = const GoldenParams&;
  static const std::map<std::string, Body> ops = {
      {"psum", [](A x, G p) { return psum(x, axes_of(p), {.axis_index_groups = groups(p)}); }},
      {"pmean", [](A x, G p) { return pmean(x, axes_of(p), {.axis_index_groups = groups(p)}); }},
      {"pmax", [](A x, G p) { return pmax(x, axes_of(p), {.axis_index_groups = groups(p)}); }},
      {"pmin", [](A x, G p) { return pmin(x, axes_of(p), {.axis_index_groups = groups(p)}); }},
      {"all_gather",
       [](A x, G p) {
         return all_gather(x, axes_of(p),
                           {.axis = axis_of(p), .tiled = tiled(p), .axis_index_groups = groups(p)});
       }},
      {"all_gather_invariant",
       [](A x, G p) {
         return all_gather_invariant(x, axes_of(p), {.axis = axis_of(p), .tiled = tiled(p)});
       }},
      {"psum_scatter",
       [](A x, G p) {
         return psum_scatter(
             x, axes_of(p),
             {.scatter_dimension = axis_of(p), .tiled = tiled(p), .axis_index_groups = groups(p)});
       }},
      {"pscatter",
       [](A x, G p) {
         return pscatter(x, axes_of(p), {.scatter_dimension = axis_of(p), .tiled = tiled(p)});
       }},
      {"all_to_all",
       [](A x, G p) {
         return all_to_all(x, axes_of(p), static_cast<int>(p.integer_or("split_axis", 0)),
                           static_cast<int>(p.integer_or("concat_axis", 0)),
                           {.tiled = tiled(p), .axis_index_groups = groups(p)});
       }},
      {"ppermute",
       [](A x, G p) {
         std::vector<std::pair<int, int>> pairs;
         for (const auto& pair : p.int_lists("perm"))
           pairs.emplace_back(static_cast<int>(pair.at(0)), static_cast<int>(pair.at(1)));
         return ppermute(x, axes_of(p), pairs);
       }},
      {"pshuffle",
       [](A x, G p) {
         const auto perm = p.ints("perm");
         return pshuffle(x, axes_of(p), std::vector<int>(perm.begin(), perm.end()));
       }},
      {"pswapaxes", [](A x, G p) { return pswapaxes(x, axes_of(p), axis_of(p)); }},
      {"broadcast_from",
       [](A x, G p) {
         return broadcast_from(x, axes_of(p), static_cast<int>(p.integer("source")));
       }},
      {"axis_index", [](A, G p) { return reshape(axis_index(axes_of(p)), {1}); }},
  };
  return ops;
}

void expect_values_and_types(bool under_jit) {
  int count = 0;
  for (const GoldenCase& c : testing::load_golden("shard_map")) {
    if (!c.params.has("op")) continue;
    SCOPED_TRACE(c.name);
    ++count;
    try {
      std::string type;
      const auto body = [&](Array x) {
        Array y = collectives().at(c.params.text("op"))(x, c.params);
        if (y.ndim() == 0) y = reshape(y, {1});
        type = to_string(y.type());
        return y;
      };
      const auto mapped = shard_map(body, testing::case_mesh(c), testing::case_in_specs(c),
                                    testing::case_out_specs(c));
      const Array x = testing::to_array(c.inputs.at(0));
      const Array out =
          under_jit ? test::expect_same_under_jit(mapped, test::Communication::same, x) : mapped(x);
      EXPECT_EQ(testing::golden_diff(c.outputs.at(0), out, 0), "");
      if (c.params.has("types")) {
        EXPECT_EQ(type, c.params.texts("types").at(0));
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << "threw: " << e.what();
    }
  }
  EXPECT_GT(count, 150);
}

TEST(GoldenCollectives, ValuesAndTypes) { expect_values_and_types(false); }
TEST(GoldenCollectives, TheSameUnderJit) { expect_values_and_types(true); }

}  // namespace
}  // namespace shmap
