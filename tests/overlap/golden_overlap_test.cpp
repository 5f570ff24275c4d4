// shmap-test: devices
// Overlapped products and their gradients against JAX's plain forms: f32 and bf16, over one mesh
// axis and over several, in every form; eagerly and under jit.
#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/golden_array.h"
#include "tests/support/golden_mesh.h"

namespace shmap {
namespace {

using testing::GoldenCase;

Array overlapped(const GoldenCase& c, const Array& a, const Array& b, Overlap form) {
  const std::string kind = c.params.text("kind"), spec = c.params.text("spec");
  const Axes axes(c.params.texts("axes"));
  const auto number = [&](const char* name) { return static_cast<int>(c.params.integer(name)); };
  if (kind == "gather") {
    return all_gather_einsum(spec, a, b, axes,
                             {.operand = number("operand"), .axis = number("dim"), .form = form});
  }
  if (kind == "scatter")
    return einsum_psum_scatter(spec, a, b, axes,
                               {.scatter_dimension = number("dim"), .form = form});
  return all_to_all_einsum(spec, a, b, axes,
                           {.operand = number("operand"),
                            .split_axis = number("dim"),
                            .concat_axis = number("joined"),
                            .form = form});
}

void expect_values(Overlap form, bool jitted) {
  int count = 0;
  for (const GoldenCase& c : testing::load_golden("overlap")) {
    SCOPED_TRACE(c.name);
    ++count;
    try {
      const auto mapped =
          shard_map([&](Array a, Array b) { return overlapped(c, a, b, form); },
                    testing::case_mesh(c), testing::case_in_specs(c), testing::case_out_specs(c));
      const auto run = [&](Array a, Array b, Array ct) {
        auto [y, pullback] = vjp(mapped, a, b);
        auto [a_bar, b_bar] = pullback(ct);
        return std::vector<Array>{y, a_bar, b_bar};
      };
      const Array a = testing::to_array(c.inputs.at(0)), b = testing::to_array(c.inputs.at(1)),
                  ct = testing::to_array(c.inputs.at(2));
      const std::vector<Array> got = jitted ? jit(run)(a, b, ct) : run(a, b, ct);
      for (std::size_t o = 0; o < got.size(); ++o) {
        EXPECT_EQ(
            testing::golden_diff(c.outputs.at(o), got[o], static_cast<int>(c.params.integer("ulp")),
                                 c.params.number("atol")),
            "")
            << "output " << o;
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << "threw: " << e.what();
    }
  }
  EXPECT_EQ(count, 24);
}

TEST(GoldenOverlap, Ring) {
  expect_values(Overlap::ring, false);
  expect_values(Overlap::ring, true);
}
TEST(GoldenOverlap, TwoRings) {
  expect_values(Overlap::two_rings, false);
  expect_values(Overlap::two_rings, true);
}
TEST(GoldenOverlap, Automatic) {
  expect_values(Overlap::automatic, false);
  expect_values(Overlap::automatic, true);
}
TEST(GoldenOverlap, None) {
  expect_values(Overlap::none, false);
  expect_values(Overlap::none, true);
}

}  // namespace
}  // namespace shmap
