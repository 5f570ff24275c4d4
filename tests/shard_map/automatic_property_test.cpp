// shmap-test: devices
// Random bodies over some axes of a mesh, whose other axis is automatic: the same values, tangents
// and gradients as over all axes, by specs that leave out the other one, eagerly and under jit,
// however the arguments are split over the automatic axis. A failure prints its case number: run
// with SHMAP_TEST_CASE=<n> to repeat that one alone.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/support/device_grids.h"
#include "tests/support/random_integer_body.h"
#include "tests/support/random_smooth_body.h"

namespace shmap {
namespace {

using namespace test;

// One program of so many is also called with parts of it under jit in the body, which takes long
// where plans compile kernels.
constexpr unsigned kWithJits = 4;

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

// Instructions in stretches, each of which is called under jit. The jitted functions stay, and
// their plans with them.
class Stretches {
 public:
  // run: makes the value of an instruction from the values before it.
  Stretches(RandomChoice& g, std::size_t length,
            const std::function<Array(std::size_t instruction, const std::vector<Array>&)>& run) {
    for (std::size_t from = 0, to = 0; from < length; from = to) {
      to = from + 1 + g.pick(length - from);
      calls_.emplace_back(jit([this, from, to, run](std::vector<Array> values) {
        ++traces_;
        const std::size_t given = values.size();
        for (std::size_t i = from; i < to; ++i) values.push_back(run(i, values));
        return std::vector<Array>(values.begin() + static_cast<std::ptrdiff_t>(given),
                                  values.end());
      }));
    }
  }
  Stretches(const Stretches&) = delete;
  Stretches& operator=(const Stretches&) = delete;

  // The values given and what the instructions make.
  std::vector<Array> operator()(std::vector<Array> values) const {
    for (const auto& call : calls_)
      for (Array& x : call(values)) values.push_back(std::move(x));
    return values;
  }
  int traces() const { return traces_; }
  int size() const { return static_cast<int>(calls_.size()); }

 private:
  std::vector<std::function<std::vector<Array>(std::vector<Array>)>> calls_;
  int traces_ = 0;
};

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
  const Stretches stretches(g, g.program.size(), [&](std::size_t i, const std::vector<Array>& v) {
    return g.program[i].ours(v);
  });
  const auto checked = [&](std::vector<Array> blocks) {
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      unsigned varying = 0;
      for (const std::string& name : blocks[k].vma()) varying |= name == "i" ? 1u : 2u;
      EXPECT_EQ(varying, g.known[k].varying) << "the variance of %" << k;
      EXPECT_EQ(blocks[k].shape(), Shape(g.known[k].shape)) << "the shape of %" << k;
      if (blocks[k].ndim() == 0) blocks[k] = reshape(blocks[k], {1});
    }
    return blocks;
  };
  const auto body = [&](std::vector<Array> blocks) {
    for (const IntegerInstruction& i : g.program) blocks.push_back(i.ours(blocks));
    return checked(std::move(blocks));
  };
  const auto jits = [&](std::vector<Array> blocks) { return checked(stretches(blocks)); };
  try {
    const std::vector<Array> want =
        shard_map(body, mesh, {Specs(in_specs)}, Specs(out_specs))(arguments);
    std::vector<std::string> split;  // as the eager run leaves the results
    const auto expect = [&](const std::vector<Array>& got, const char* how) {
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t k = 0; k < got.size(); ++k) {
        EXPECT_EQ(got[k].shape(), want[k].shape());
        EXPECT_EQ(got[k].to_vector<std::int32_t>(), want[k].to_vector<std::int32_t>())
            << "%" << k << how;
        if (split.size() == k) split.push_back(to_string(got[k].sharding()));
        EXPECT_EQ(to_string(got[k].sharding()), split[k]) << "%" << k << how;
      }
    };
    const auto over = [&](auto b) {
      return shard_map(b, mesh, {Specs(in_specs)}, Specs(out_specs), over_body_axes(g));
    };
    expect(over(body)(placed), "");
    const auto staged = jit(over(body));
    const auto with_jits = over(jits);
    for (int call = 0; call < 2; ++call) expect(staged(placed), ", under jit");
    if (number % kWithJits != 0) return;
    for (int call = 0; call < 4; ++call) expect(with_jits(placed), ", of jits in the body");
    EXPECT_EQ(stretches.traces(), stretches.size());  // whose plans serve all calls
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
  const Stretches stretches(g, g.program.size(),
                            [&](std::size_t i, const Values& v) { return g.program[i].mapped(v); });
  const auto loss = [&](ShardMapOptions options, bool of_jits = false) {
    const auto body = [&, of_jits](Values values) {
      if (of_jits)
        values = stretches(values);
      else
        for (const SmoothInstruction& i : g.program) values.push_back(i.mapped(values));
      Values out;
      for (const std::size_t r : results)
        out.push_back(values[r].ndim() == 0 ? reshape(values[r], {1}) : values[r]);
      return out;
    };
    return [&, body, options](const Values& args) {
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
    const auto f = loss(over_body_axes(g, checked)),
               with_jits = loss(over_body_axes(g, checked), true);
    const int calls_of_jits = number % kWithJits == 0 ? 3 : 0;
    for (int call = 0; call <= calls_of_jits; ++call) {
      const auto [value, gradient] = value_and_grad(call == 0 ? f : with_jits)(placed);
      expect_near(value, want, "the value");
      for (std::size_t k = 0; k < wanted.size(); ++k)
        expect_near(gradient[k], wanted[k], "a gradient");
      if (call > 0) expect_near(with_jits(placed), want, "the value of jits");
    }
    if (!forward) return;
    Array along = 0.;
    for (std::size_t k = 0; k < wanted.size(); ++k) along = along + sum(wanted[k] * directions[k]);
    for (int of_jits = 0; of_jits <= (calls_of_jits > 0 ? 1 : 0); ++of_jits) {
      const auto [y, slope] =
          jvp(of_jits ? with_jits : f, std::tuple{placed}, std::tuple{directions});
      expect_near(slope, along, "the derivative along a direction");
    }
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
