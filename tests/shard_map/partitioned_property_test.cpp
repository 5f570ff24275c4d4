// shmap-test: devices
// Random programs of whole arrays, split by random specs, compute what they compute unsplit; and
// each can be explained and simulated.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "shmap/shmap.h"

namespace shmap::test {
namespace {

constexpr std::int64_t kExtent = 16;

// A random choice among a few meshes of all devices.
Mesh any_mesh(std::mt19937& random) {
  switch (random() % 3) {
    case 0:
      return make_mesh({8}, {"i"});
    case 1:
      return make_mesh({4, 2}, {"i", "j"});
    default:
      return make_mesh({2, 2, 2}, {"i", "j", "k"});
  }
}

// A random spec: each axis of the mesh is on one of the two dims or on none; the extents divide.
P any_spec(std::mt19937& random, const Mesh& mesh) {
  std::vector<std::string> dims[2];
  for (const std::string& axis : mesh.axis_names())
    if (const std::size_t d = random() % 3; d < 2) dims[d].push_back(axis);
  return P(Axes(dims[0]), Axes(dims[1]));
}

// A program of instructions on square arrays of small whole numbers, so that sums are exact in
// whatever order they are taken.
struct Program {
  struct Instruction {
    std::uint32_t op, a, b;
  };
  std::vector<Instruction> instructions;
  std::vector<P> constraints;  // one for each; of instructions that have none: unused

  Array operator()(Array x, Array w, const Mesh* mesh) const {
    std::vector<Array> values{x, w, iota(f32, kExtent) + zeros({kExtent, kExtent})};
    for (std::size_t k = 0; k < instructions.size(); ++k) {
      const Instruction& in = instructions[k];
      const Array a = values[in.a % values.size()], b = values[in.b % values.size()];
      Array y = apply(in.op, a, b);
      if (mesh && in.op % 5 == 0)
        y = with_sharding_constraint(y, NamedSharding(*mesh, constraints[k]));
      // Small numbers stay small.
      values.push_back(y - floor(y / 8.f) * 8.f);
    }
    return values.back();
  }

  static Array apply(std::uint32_t op, const Array& a, const Array& b) {
    const Shape square{kExtent, kExtent};
    switch (op % 14) {
      case 0:
        return a + b;
      case 1:
        return a * b;
      case 2:
        return matmul(a, b);
      case 3:
        return transpose(a) - b;
      case 4:
        return broadcast_to(sum(a, 0, true), square) + b;
      case 5:
        return maximum(broadcast_to(max(a, 1, true), square), b);
      case 6:
        return cumsum(a, static_cast<int>(op % 2));
      case 7:
        return concatenate({a[{range(0, kExtent / 2)}], b[{range(kExtent / 2, kExtent)}]}, 0);
      case 8:
        return reshape(transpose(reshape(a, {4, 4, kExtent}), {1, 0, 2}), square);
      case 9:
        return where(a > b, a, full(square, 3.f));
      case 10:
        return fori_loop(
            0, 3, [&](Array i, Array c) { return remainder(matmul(c, b) + i, Array(8.f)); }, a);
      case 11:
        return cond(
            sum(a) > sum(b), [](Array c, Array d) { return c + transpose(d); },
            [](Array c, Array d) { return c - d; }, a, b);
      case 12:
        return flip(a, 0) + roll(b, 3, 1);
      default:
        return pad(a[{range(1, kExtent), range()}], {{0, 1}, {0, 0}});
    }
  }
};

TEST(PartitionedProperty, SplitProgramsComputeWhatTheyComputeUnsplit) {
  constexpr int kPrograms = 100;
  const Topology machine{
      .levels = {{2, {1, 1000}}, {4, {5, 100}}}, .flops_per_us = 1e4, .memory_bytes_per_us = 1e3};
  for (int n = 0; n < kPrograms; ++n) {
    SCOPED_TRACE("program " + std::to_string(n));
    std::mt19937 random(static_cast<std::uint32_t>(n));
    const Mesh mesh = any_mesh(random);
    Program program;
    for (std::size_t k = 3 + random() % 6; k > 0; --k) {
      program.instructions.push_back({static_cast<std::uint32_t>(random()),
                                      static_cast<std::uint32_t>(random()),
                                      static_cast<std::uint32_t>(random())});
      program.constraints.push_back(any_spec(random, mesh));
    }
    const P x_spec = any_spec(random, mesh), w_spec = any_spec(random, mesh),
            out = any_spec(random, mesh);
    const auto split = [&](Array x, Array w) { return program(x, w, &mesh); };
    const Array x = remainder(reshape(arange(kExtent * kExtent), {kExtent, kExtent}), Array(5.f));
    const Array w = remainder(x * 3.f + 1.f, Array(7.f));
    const std::vector<float> want = program(x, w, nullptr).to_vector<float>();
    const auto f = jit(split, mesh, {x_spec, w_spec}, out);
    for (int call = 0; call < 2; ++call) {
      const Array y = f(x, w);
      EXPECT_EQ(y.to_vector<float>(), want) << explain_sharding(make_jaxpr(f)(x, w));
      EXPECT_EQ(y.sharding(), NamedSharding(mesh, out));
    }
    EXPECT_EQ(jit(split, mesh)(x, w).to_vector<float>(), want);
    const ClosedJaxpr jaxpr = make_jaxpr(f)(x.type(), w.type());
    EXPECT_NE(explain_sharding(jaxpr).find("result 0"), std::string::npos);
    const Schedule s = simulate(jaxpr, machine);
    EXPECT_GT(s.us, 0);
    EXPECT_LE(s.exposed_communication_us, s.us);
    EXPECT_GE(s.exposed_communication_us, 0);
    EXPECT_GT(s.peak_bytes, 0);
    if (HasFailure()) return;  // one program is enough to look at
  }
}

}  // namespace
}  // namespace shmap::test
