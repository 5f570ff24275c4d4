// shmap-test: devices
// Gradients of random bodies over random meshes and specs: against central differences and jvp,
// with and without checked variance, eagerly and under jit, and against plain host code. A failure
// prints its case number: run with SHMAP_TEST_CASE=<n> to repeat that one alone.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cmath>

#include "tests/support/gradient_check.h"
#include "tests/support/random_smooth_body.h"

namespace shmap {
namespace {

using namespace test;

// Checks a random body with its mesh, specs and arguments. Some arguments go through the specs; the
// body captures the others.
void run_case(unsigned number) {
  static const std::vector<Extents> meshes = {{1},    {1, 2}, {2, 2}, {2, 4},
                                              {4, 2}, {8},    {2, 1}, {4}};
  RandomSmoothBody g(number * 7919u + 29u, meshes);
  const Mesh mesh = g.mesh();
  Values arguments, directions;
  std::vector<P> in_specs;
  std::vector<SpecDims> in_dims, out_dims;
  const std::size_t inputs = 1 + g.pick(2), captured = g.pick(2);
  for (std::size_t k = 0; k < inputs + captured; ++k) {
    const std::size_t rank = g.pick(4);
    const auto spec = k < inputs ? g.random_spec(rank, 0) : SpecDims(rank);
    const auto [block, whole] = g.random_shapes(spec);
    g.known.push_back({block, RandomChoice::mask(spec)});
    arguments.push_back(g.random_array(whole));
    directions.push_back(g.random_array(whole));
    in_dims.push_back(spec);
    if (k < inputs) in_specs.push_back(RandomChoice::to_spec(spec));
  }
  const std::size_t length = 2 + g.pick(7);
  for (std::size_t k = 0; k < length; ++k) g.step();

  // The last value, and any other one; a scalar gets a dim, since it may have to be split.
  const std::vector<std::size_t> results = {g.known.size() - 1, g.pick(g.known.size())};
  std::vector<P> out_specs;
  std::vector<double> weights;
  for (const std::size_t r : results) {
    const std::size_t rank = std::max<std::size_t>(g.known[r].shape.size(), 1);
    out_dims.push_back(g.random_spec(rank, g.known[r].varying));
    out_specs.push_back(RandomChoice::to_spec(out_dims.back()));
    weights.push_back(g.number());
  }
  std::string text = "case " + std::to_string(number) + " on " + to_string(mesh) + ":";
  for (const P& p : in_specs) text += " " + to_string(p);
  text += ", " + std::to_string(captured) + " captured";
  for (const SmoothInstruction& i : g.program) text += "\n  " + i.text;
  for (const P& p : out_specs) text += "\n  -> " + to_string(p);
  SCOPED_TRACE(text);

  const auto run_body = [&](Values values) {
    for (const SmoothInstruction& i : g.program) values.push_back(i.mapped(values));
    Values out;
    for (const std::size_t r : results)
      out.push_back(values[r].ndim() == 0 ? reshape(values[r], {1}) : values[r]);
    return out;
  };
  const auto weighed = [&](const Values& out) {
    Array total = 0.;
    for (std::size_t k = 0; k < out.size(); ++k) {
      const Array wave = reshape(cos(arange(out[k].size(), f64)), out[k].shape());
      total = total + weights[k] * sum(out[k] * wave);
    }
    return total;
  };
  const auto loss = [&](ShardMapOptions options) {
    return [&, options](const Values& args) {
      const Values given(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(inputs));
      const Values rest(args.begin() + static_cast<std::ptrdiff_t>(inputs), args.end());
      const auto body = [&run_body, rest](Values blocks) {
        blocks.insert(blocks.end(), rest.begin(), rest.end());
        return run_body(std::move(blocks));
      };
      return weighed(shard_map(body, mesh, {Specs(in_specs)}, Specs(out_specs), options)(given));
    };
  };
  try {
    check_gradient(loss({}), loss({.check_vma = false}), arguments, directions, number % 4 == 0,
                   number % 5 == 0);
    // The value, and the derivative along the directions.
    const HostMesh host = g.host_mesh();
    const DerivativeLevel level;
    RealValues values;
    for (std::size_t k = 0; k < arguments.size(); ++k) {
      const Reals at = to_reals(arguments[k]), along = to_reals(directions[k]);
      values.push_back(split_by_spec(
          combined(at, along,
                   [&](const Jet& x, const Jet& v) { return Jet::along(x, level.number(), v); }),
          host, in_dims[k]));
    }
    for (const SmoothInstruction& i : g.program) values.push_back(i.plain(values));
    Jet want;
    for (std::size_t k = 0; k < results.size(); ++k) {
      RealBlocks blocks = values[results[k]];
      for (Reals& b : blocks)
        if (b.shape.empty()) b.shape = {1};
      const Reals whole = join_by_spec(blocks, host, out_dims[k]);
      for (std::size_t e = 0; e < whole.values.size(); ++e)
        want = want + whole.values[e] * Jet(weights[k] * std::cos(static_cast<double>(e)));
    }
    const auto [y, slope] = jvp(loss({}), std::tuple{arguments}, std::tuple{directions});
    const double dy = want.derivative(level.number()).value();
    EXPECT_NEAR(y.item<double>(), want.value(), 1e-9 * (1 + std::abs(want.value())));
    EXPECT_NEAR(slope.item<double>(), dy, 1e-9 * (1 + std::abs(dy)));
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw: " << e.what();
  }
}

TEST(GradientProperty, RandomBodies) { run_cases(400, run_case); }

}  // namespace
}  // namespace shmap
