// shmap-test: devices
// Random programs of transforms inside of transforms against plain host code: eagerly, under jit
// and replayed, with arguments given up, and their derivatives. SHMAP_TEST_PROGRAMS sets how many
// run, SHMAP_TEST_SEED which comes first. A failure prints the command that repeats it.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "tests/support/program_seeds.h"
#include "tests/support/random_smooth_body.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using namespace test;

constexpr unsigned kPrograms = 60;  // some five seconds on one core

// The tolerance covers different orders of summation, which a program amplifies some thousandfold.
void expect_close(const std::string& what, const Array& got, const Reals& want) {
  ASSERT_EQ(got.shape(), Shape(want.shape)) << what;
  const std::vector<double> values = got.to_vector<double>();
  double scale = 1;
  for (const Jet& w : want.values) scale = std::max(scale, std::abs(w.value()));
  for (std::size_t e = 0; e < values.size(); ++e)
    ASSERT_NEAR(values[e], want.values[e].value(), 1e-9 * scale) << what << ", element " << e;
}

void run_program(unsigned seed) {
  RandomSmoothBody g(seed * 7919u + 43u, {Extents{}});
  // Reverse mode needs transpose rules; forward mode also draws operations without one.
  const bool reverse = g.pick(3) != 0;
  g.where = {.transforms = 3, .derivatives = 2, .reverse = reverse, .forward = !reverse};
  Values arguments;
  RealValues plain;
  for (std::size_t k = 0; k < 2 + g.pick(2); ++k) {
    static const std::vector<std::int64_t> extents = {1, 2, 2, 3, 4, 4, 8};
    Extents shape;
    for (std::size_t rank = g.pick(3); rank > 0; --rank)
      shape.push_back(extents[g.pick(extents.size())]);
    arguments.push_back(g.random_array(shape));
    plain.push_back({to_reals(arguments.back())});
    g.known.push_back({shape, 0});
  }
  const std::size_t length = 2 + g.pick(3);
  for (std::size_t k = 0; k < length; ++k) g.step();
  const SmoothProgram p{g.program, g.known.back()};
  SCOPED_TRACE("repeat with: " + command_for(seed, "random_programs_test") + p.text());
  const auto f = [&](const Values& x) { return p.mapped(x); };
  const auto loss = [&](const Values& x) { return sum(sin(f(x))); };
  try {
    const Reals want = p.plain(plain)[0];
    double size = 0;
    for (const Jet& v : want.values) size = std::max(size, std::abs(v.value()));
    if (!(size < 1e3)) return;  // what comes of it is noise
    expect_close("eager", f(arguments), want);
    const auto jitted = jit(f);
    for (const char* call : {"jit", "replayed", "replayed again"})
      expect_close(call, jitted(arguments), want);
    Values mine = with_own_memory(arguments);
    expect_close("jit with arguments given up", jitted(std::move(mine)), want);
    mine = with_own_memory(arguments);
    expect_close("eager with arguments given up", f(std::move(mine)), want);

    // The derivative along cos(x) of the sum of sines of the results.
    const auto slope_along = [&](const std::function<Jet(const Jet&, int)>& move) {
      const DerivativeLevel level;
      RealValues moved = plain;
      for (RealBlocks& blocks : moved)
        blocks[0] = map_reals(blocks[0], [&](const Jet& x) { return move(x, level.number()); });
      const Jet y = sum_of(map_reals(p.plain(moved)[0], [](const Jet& v) { return sin(v); }));
      return y.derivative(level.number());
    };
    const Jet slope =
        slope_along([](const Jet& x, int level) { return Jet::along(x, level, cos(x)); });
    if (!(std::abs(slope.value()) < 1e4)) return;
    const Reals wanted{{}, {slope}};
    Values directions;
    for (const Array& x : arguments) directions.push_back(cos(x));
    if (!reverse) {
      const auto forwards = [&](const Values& x, const Values& v) {
        return jvp(loss, std::tuple{x}, std::tuple{v}).second;
      };
      expect_close("jvp", forwards(arguments, directions), wanted);
      const auto compiled = jit(forwards);
      for (const char* call : {"jit of jvp", "replayed"})
        expect_close(call, compiled(arguments, directions), wanted);
      return;
    }
    const auto along = [&](const Values& gradient) {
      Array total = 0.;
      for (std::size_t k = 0; k < gradient.size(); ++k)
        total = total + sum(gradient[k] * directions[k]);
      return total;
    };
    expect_close("grad", along(grad(loss)(arguments)), wanted);
    const auto compiled = jit(grad(loss));
    for (const char* call : {"jit of grad", "replayed"})
      expect_close(call, along(compiled(arguments)), wanted);
    expect_close("grad of jit", along(grad(jit(loss))(arguments)), wanted);
    expect_close("grad of checkpoint", along(grad(checkpoint(loss))(arguments)), wanted);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw: " << e.what();
  }
}

TEST(RandomPrograms, TransformsInsideOfTransforms) {
  const unsigned first = setting("SHMAP_TEST_SEED", 0),
                 count = setting("SHMAP_TEST_PROGRAMS", kPrograms);
  for (unsigned k = 0; k < count && !HasFailure(); ++k) run_program(first + k);
}

// Programs that once failed. 5361: in an unchecked body, the gradient of a cond inside a cond on
// a block gives the inner one operands that vary more than its branches were traced with. 100496: a
// custom_jvp in a branch on a block lost its rule.
TEST(RandomPrograms, ThatFailedBefore) {
  for (const unsigned seed : {5361u, 100496u, 102437u}) run_program(seed);
}

}  // namespace
}  // namespace shmap
