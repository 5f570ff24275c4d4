// shmap-test: devices
// ragged_all_to_all against golden values, types and cotangents: over one and several axes, in both
// orders, in groups, with more rows on either side. Eagerly, and the same under jit.
#include <gtest/gtest.h>

#include <array>

#include "shmap/shmap.h"
#include "tests/support/golden_array.h"
#include "tests/support/golden_mesh.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

using Indices = std::array<Array, 4>;

// The case's body over its mesh, as a function of operand and output. `type`: that of the result.
auto mapped_case(const testing::GoldenCase& c, std::string& type) {
  Groups groups;
  if (c.params.has("groups")) {
    for (const auto& group : c.params.int_lists("groups"))
      groups.emplace_back(group.begin(), group.end());
  }
  const Axes over(c.params.texts("axes"));
  Indices indices;
  for (std::size_t k = 0; k < 4; ++k) indices[k] = testing::to_array(c.inputs.at(2 + k));
  const P split(std::vector<P::Entry>{P::Entry(Axes(c.params.texts("names")))});
  const auto mapped = shard_map(
      [over, groups, &type](Array operand, Array output, Indices at) {
        const Array y = ragged_all_to_all(operand, output, at[0], at[1], at[2], at[3], over,
                                          {.axis_index_groups = groups});
        type = to_string(y.type());
        return y;
      },
      testing::case_mesh(c), {split, split, split}, split);
  return [mapped, indices](const Array& operand, const Array& output) {
    return mapped(operand, output, indices);
  };
}

TEST(RaggedAllToAll, GoldenValuesTypesAndCotangents) {
  int count = 0;
  for (const testing::GoldenCase& c : testing::load_golden("ragged_all_to_all")) {
    SCOPED_TRACE(c.name);
    ++count;
    try {
      std::string type;
      const auto f = mapped_case(c, type);
      const Array operand = testing::to_array(c.inputs.at(0));
      const Array output = testing::to_array(c.inputs.at(1));
      const Array y = expect_same_under_jit(f, Communication::same, operand, output);
      EXPECT_EQ(testing::golden_diff(c.outputs.at(0), y, 0), "");
      EXPECT_EQ(type, c.params.texts("types").at(0));
      if (c.outputs.size() == 1) continue;
      // jvp: the operation is linear.
      const auto tangents = std::tuple{operand, output};
      EXPECT_EQ(testing::golden_diff(c.outputs.at(0), jvp(f, tangents, tangents).second, 0), "");
      const auto pull = [&](const Array& x, const Array& y0, const Array& bar) {
        const auto [x_bar, y_bar] = vjp(f, x, y0).second(bar);
        return std::vector<Array>{x_bar, y_bar};
      };
      const Array bar = testing::to_array(c.inputs.at(6));
      for (const auto& got : {pull(operand, output, bar), jit(pull)(operand, output, bar)}) {
        for (std::size_t k = 0; k < 2; ++k)
          EXPECT_EQ(testing::golden_diff(c.outputs.at(1 + k), got[k], 0), "") << "cotangent " << k;
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << "threw: " << e.what();
    }
  }
  EXPECT_GT(count, 45);
}

}  // namespace
}  // namespace shmap::test
