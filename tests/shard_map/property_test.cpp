// shmap-test: devices
// Random meshes, specs and bodies against a reference that loops over mesh coordinates in plain
// host code; and under jit against the eager run. A failure prints its case number: run with
// SHMAP_TEST_CASE=<n> to repeat that one alone.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>

#include "tests/support/random_integer_body.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using namespace test;

constexpr unsigned kCases = 500;

// Checks a random body with its mesh, specs and arguments.
void run_case(unsigned number, bool under_jit) {
  static const std::vector<Extents> meshes = {{1},    {1, 1}, {1, 2}, {2, 2},
                                              {2, 4}, {4, 2}, {8},    {2, 1}};
  RandomIntegerBody g(number * 7919u + 17u, meshes);
  const HostMesh host_mesh = g.host_mesh();
  const Mesh mesh = g.mesh();

  std::vector<HostArray> arguments;
  std::vector<SpecDims> in_dims;
  std::vector<P> in_specs;
  std::vector<Blocks> values;
  const std::size_t inputs = 1 + g.pick(3);
  for (std::size_t k = 0; k < inputs; ++k) {
    const SpecDims spec = g.random_spec(g.pick(4), 0);
    const HostArray x = filled(g.random_shape_for(spec), [&](std::int64_t) {
      return static_cast<std::int32_t>(g.pick(19)) - 9;
    });
    values.push_back(split_by_spec(x, host_mesh, spec));
    g.known.push_back({values.back().front().shape, RandomChoice::mask(spec)});
    arguments.push_back(x);
    in_dims.push_back(spec);
    in_specs.push_back(RandomChoice::to_spec(spec));
  }
  const std::size_t length = 1 + g.pick(8);
  for (std::size_t k = 0; k < length; ++k) g.step();

  for (const IntegerInstruction& instruction : g.program)
    values.push_back(instruction.reference(values));
  const Known& last = g.known.back();
  // A scalar cannot mention axes: one that varies is not returned, but made equal first.
  const bool scalar = last.shape.empty();
  const SpecDims out_dims = g.random_spec(last.shape.size(), last.varying);
  if (scalar && last.varying != 0 && !under_jit) return;

  std::string text = "case " + std::to_string(number) + " on " + to_string(mesh) + ":";
  for (const IntegerInstruction& i : g.program) text += "\n  " + i.text;
  SCOPED_TRACE(text);

  std::vector<std::string> types;
  const auto body = [&](std::vector<Array> blocks) {
    for (const IntegerInstruction& i : g.program) blocks.push_back(i.ours(blocks));
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      unsigned varying = 0;
      for (const std::string& name : blocks[k].vma()) varying |= name == "i" ? 1u : 2u;
      EXPECT_EQ(varying, g.known[k].varying) << "the variance of %" << k;
      EXPECT_EQ(blocks[k].shape(), Shape(g.known[k].shape)) << "the shape of %" << k;
    }
    return blocks.back();
  };
  std::vector<Array> inputs_ours;
  for (const HostArray& x : arguments)
    inputs_ours.push_back(array<std::int32_t>(x.values, Shape(x.shape)));
  if (under_jit) {
    // All values are results, so that none is left out (except values that are computed twice).
    // Values without a dim get one to split.
    const auto all_values = [&](std::vector<Array> blocks) {
      for (const IntegerInstruction& i : g.program) blocks.push_back(i.ours(blocks));
      for (Array& b : blocks)
        if (b.ndim() == 0) b = reshape(b, {1});
      return blocks;
    };
    std::vector<P> out_specs;
    for (const Known& k : g.known)
      out_specs.push_back(RandomChoice::to_spec(
          g.random_spec(std::max<std::size_t>(k.shape.size(), 1), k.varying)));
    expect_same_under_jit(shard_map(all_values, mesh, {Specs(in_specs)}, Specs(out_specs)),
                          Communication::no_more, inputs_ours);
    return;
  }
  const Array got =
      shard_map(body, mesh, {Specs(in_specs)}, RandomChoice::to_spec(out_dims))(inputs_ours);
  const HostArray want = join_by_spec(values.back(), host_mesh, out_dims);
  EXPECT_EQ(got.shape(), Shape(want.shape));
  EXPECT_EQ(got.to_vector<std::int32_t>(), want.values);
}

TEST(Property, RandomBodiesEqualTheLoopOverMeshCoordinates) {
  run_cases(kCases, [](unsigned number) { run_case(number, false); });
}
TEST(Property, RandomBodiesAreTheSameUnderJit) {
  run_cases(kCases, [](unsigned number) { run_case(number, true); });
}

}  // namespace
}  // namespace shmap
