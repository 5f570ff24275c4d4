// shmap-test: devices
// Random bodies over some axes of a mesh, whose other axis is automatic: the same values, tangents
// and gradients as over all axes, by specs that leave out the other one, eagerly and under jit,
// however the arguments are split over the automatic axis. A failure prints its case number: run
// with SHMAP_TEST_CASE=<n> to repeat that one alone.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cmath>

#include "tests/support/device_grids.h"
#include "tests/support/random_integer_body.h"
#include "tests/support/random_smooth_body.h"

namespace shmap {
namespace {

using namespace test;

const std::vector<Extents> meshes = {{1}, {1, 2}, {2, 2}, {4}, {2, 1}};

// The mesh of the body's axes and of the axis "auto" of two devices, at a random place among its
// axes.
Mesh with_automatic_axis(RandomChoice& g) {
  std::vector<std::int64_t> sizes = g.sizes();
  std::vector<std::string> names = {"i", "j"};
  names.resize(sizes.size());
  const auto at = static_cast<std::ptrdiff_t>(g.pick(sizes.size() + 1));
  sizes.insert(sizes.begin() + at, 2);
  names.insert(names.begin() + at, "auto");
  return mesh_in_all_processes(Shape(sizes), names);
}

ShardMapOptions over_body_axes(const RandomChoice& g, bool check_vma = true) {
  ShardMapOptions options;
  options.check_vma = check_vma;
  options.axis_names = g.sizes().size() == 1 ? axes("i") : axes("i", "j");
  return options;
}

// x, split over any axes of the mesh: some of a dim's that divide it.
Array placed_anyhow(RandomChoice& g, const Array& x, const Mesh& mesh) {
  std::vector<std::string> left = mesh.axis_names();
  std::vector<P::Entry> entries;
  for (int d = 0; d < x.ndim(); ++d) {
    std::vector<std::string> axes;
    std::int64_t parts = 1;
    while (!left.empty() && g.coin()) {
      const std::size_t a = g.pick(left.size());
      const std::int64_t size = mesh.axis_size(left[a]);
      if (x.shape()[d] % (parts * size) != 0) break;
      parts *= size;
      axes.push_back(left[a]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(a));
    }
    entries.emplace_back(Axes(axes));
  }
  return device_put(x, NamedSharding(mesh, P(std::move(entries))));
}

void expect_near(const Array& got, const Array& want, const char* what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  for (std::size_t k = 0; k < a.size(); ++k)
    ASSERT_NEAR(a[k], b[k], 1e-9 * (1 + std::abs(b[k]))) << what << ", element " << k;
}

void run_integers(unsigned number) {
  RandomIntegerBody g(number * 7919u + 31u, meshes);
  const Mesh mesh = with_automatic_axis(g);
  std::vector<Array> arguments, placed;
  std::vector<P> in_specs, out_specs;
  for (std::size_t k = 0, inputs = 1 + g.pick(3); k < inputs; ++k) {
    const SpecDims spec = g.random_spec(g.pick(4), 0);
    const Extents shape = g.random_shape_for(spec);
    Extents block = shape;
    for (std::size_t d = 0; d < spec.size(); ++d) block[d] /= g.ranks(spec[d]);
    g.known.push_back({block, RandomChoice::mask(spec)});
    std::vector<std::int32_t> values;
    for (std::int64_t n = Shape(shape).num_elements(); n > 0; --n)
      values.push_back(static_cast<std::int32_t>(g.pick(19)) - 9);
    arguments.push_back(array<std::int32_t>(values, Shape(shape)));
    in_specs.push_back(RandomChoice::to_spec(spec));
  }
  for (std::size_t k = 0, length = 1 + g.pick(8); k < length; ++k) g.step();
  std::string text = "case " + std::to_string(number) + " on " + to_string(mesh) + ":";
  for (const IntegerInstruction& i : g.program) text += "\n  " + i.text;
  for (const Array& x : arguments) {
    placed.push_back(placed_anyhow(g, x, mesh));
    text += "\n  " + to_string(x.type()) + " " + to_string(placed.back().sharding());
  }
  SCOPED_TRACE(text);
  for (const Known& k : g.known)
    out_specs.push_back(
        RandomChoice::to_spec(g.random_spec(std::max<std::size_t>(k.shape.size(), 1), k.varying)));
  const auto body = [&](std::vector<Array> blocks) {
    for (const IntegerInstruction& i : g.program) blocks.push_back(i.ours(blocks));
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      unsigned varying = 0;
      for (const std::string& name : blocks[k].vma()) varying |= name == "i" ? 1u : 2u;
      EXPECT_EQ(varying, g.known[k].varying) << "the variance of %" << k;
      EXPECT_EQ(blocks[k].shape(), Shape(g.known[k].shape)) << "the shape of %" << k;
      if (blocks[k].ndim() == 0) blocks[k] = reshape(blocks[k], {1});
    }
    return blocks;
  };
  try {
    const std::vector<Array> want =
        shard_map(body, mesh, {Specs(in_specs)}, Specs(out_specs))(arguments);
    const auto f = shard_map(body, mesh, {Specs(in_specs)}, Specs(out_specs), over_body_axes(g));
    const auto staged = jit(f);
    for (int call = 0; call < 3; ++call) {
      const std::vector<Array> got = call == 0 ? f(placed) : staged(placed);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t k = 0; k < got.size(); ++k) {
        EXPECT_EQ(got[k].shape(), want[k].shape());
        EXPECT_EQ(got[k].to_vector<std::int32_t>(), want[k].to_vector<std::int32_t>())
            << "%" << k << (call == 0 ? "" : ", under jit");
      }
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw: " << e.what();
  }
}

void run_derivatives(unsigned number) {
  RandomSmoothBody g(number * 7919u + 37u, meshes);
  const bool checked = g.pick(4) != 0, forward = number % 3 == 0;
  g.where.forward = forward;
  g.where.checked = checked;
  g.where.transforms = 1;
  const Mesh mesh = with_automatic_axis(g);
  Values arguments, placed, directions;
  std::vector<P> in_specs, out_specs;
  for (std::size_t k = 0, inputs = 1 + g.pick(3); k < inputs; ++k) {
    const SpecDims spec = g.random_spec(g.pick(4), 0);
    const auto [block, whole] = g.random_shapes(spec);
    g.known.push_back({block, RandomChoice::mask(spec)});
    arguments.push_back(g.random_array(whole));
    placed.push_back(placed_anyhow(g, arguments.back(), mesh));
    directions.push_back(g.random_array(whole));
    in_specs.push_back(RandomChoice::to_spec(spec));
  }
  for (std::size_t k = 0, length = 2 + g.pick(7); k < length; ++k) g.step();
  const std::vector<std::size_t> results = {g.known.size() - 1, g.pick(g.known.size())};
  for (const std::size_t r : results) {
    const std::size_t rank = std::max<std::size_t>(g.known[r].shape.size(), 1);
    out_specs.push_back(RandomChoice::to_spec(g.random_spec(rank, g.known[r].varying)));
  }
  std::string text = "case " + std::to_string(number) + " on " + to_string(mesh) + ":";
  for (std::size_t k = 0; k < in_specs.size(); ++k)
    text += " " + to_string(in_specs[k]) + " of " + to_string(placed[k].sharding());
  for (const SmoothInstruction& i : g.program) text += "\n  " + i.text;
  for (const P& p : out_specs) text += "\n  -> " + to_string(p);
  SCOPED_TRACE(text);
  const auto body = [&](Values values) {
    for (const SmoothInstruction& i : g.program) values.push_back(i.mapped(values));
    Values out;
    for (const std::size_t r : results)
      out.push_back(values[r].ndim() == 0 ? reshape(values[r], {1}) : values[r]);
    return out;
  };
  const auto loss = [&](ShardMapOptions options) {
    return [&, options](const Values& args) {
      Array total = 0.;
      for (const Array& y :
           shard_map(body, mesh, {Specs(in_specs)}, Specs(out_specs), options)(args))
        total = total + sum(y * reshape(cos(arange(y.size(), f64)), y.shape()));
      return total;
    };
  };
  try {
    ShardMapOptions plain;
    plain.check_vma = checked;
    const auto [want, wanted] = value_and_grad(loss(plain))(arguments);
    const auto f = loss(over_body_axes(g, checked));
    const auto [value, gradient] = value_and_grad(f)(placed);
    expect_near(value, want, "the value");
    for (std::size_t k = 0; k < wanted.size(); ++k)
      expect_near(gradient[k], wanted[k], "a gradient");
    if (!forward) return;
    const auto [y, slope] = jvp(f, std::tuple{placed}, std::tuple{directions});
    Array along = 0.;
    for (std::size_t k = 0; k < wanted.size(); ++k) along = along + sum(wanted[k] * directions[k]);
    expect_near(slope, along, "the derivative along a direction");
    const auto staged = jit(grad(f));
    for (int call = 0; call < 2; ++call) {
      const Values again = staged(placed);
      for (std::size_t k = 0; k < wanted.size(); ++k)
        expect_near(again[k], wanted[k], "a gradient under jit");
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw: " << e.what();
  }
}

TEST(AutomaticProperty, RandomBodiesGiveWhatTheyGiveOverAllAxes) { run_cases(200, run_integers); }
TEST(AutomaticProperty, AndSoDoTheirDerivatives) { run_cases(120, run_derivatives); }

}  // namespace
}  // namespace shmap
