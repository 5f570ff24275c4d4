// explain_sharding: the whole text for one program, and parts of the text for others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "shmap/shmap.h"

namespace shmap::test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ExplainSharding, AProgramAsAWhole) {
  const AbstractMesh mesh({4, 2}, {"i", "j"});
  const auto f = [](Array x, Array w, Array v) {
    const Array h = tanh(matmul(x, w));
    return matmul(h, v);
  };
  const ClosedJaxpr jaxpr = make_jaxpr(jit(f, mesh, {P("i"), P(none, "j"), P("j")}, P(none, "i")))(
      ShapedArray({16, 8}, f32), ShapedArray({8, 8}, f32), ShapedArray({8, 8}, f32));
  EXPECT_EQ(explain_sharding(jaxpr), R"(mesh 'i': 4, 'j': 2
a:f32[16,8]  P('i')  an argument, as the program takes it
b:f32[8,8]  P(none, 'j')  an argument, as the program takes it
c:f32[8,8]  P('j')  an argument, as the program takes it
d:f32[16,8]  P(none, 'i')  = jit a b c
    as the program inside leaves it
    program inside {
      a:f32[16,8]  P('i')  an argument
      b:f32[8,8]  P(none, 'j')  an argument
      c:f32[8,8]  P('j')  an argument
      d:f32[16,8]  P('i')  = sharding_constraint a
          as in_specs say of argument 0
      e:f32[8,8]  P(none, 'j')  = sharding_constraint b
          as in_specs say of argument 1
      f:f32[8,8]  P('j')  = sharding_constraint c
          as in_specs say of argument 2
      g:f32[16,8]  P('i', 'j')  = dot_general d e
          dim 0 over 'i', as dim 0 of d
          dim 1 over 'j', as dim 1 of e
      h:f32[16,8]  P('i', 'j')  = tanh g
          dim 0 over 'i', as dim 0 of g
          dim 1 over 'j', as dim 1 of g
      i:f32[16,8]  P('i')  = dot_general h f
          dim 0 over 'i', as dim 0 of h
          each device has a part of the sum: dim 1 of h and dim 0 of f over 'j', as dim 1 of h
          makes the result whole: psum over 'j', 128 bytes from each device
      j:f32[16,8]  P(none, 'i')  = sharding_constraint i
          as out_specs say of result 0
          move i from P('i') to P(none, 'i'): all_to_all over 'i', 128 bytes from each device
      result 0: j  P(none, 'i')
    }
result 0: d  P(none, 'i')
)");
}

const ShapedArray kSquare({16, 16}, f32);

TEST(ExplainSharding, WhyAnOperandIsMoved) {
  const AbstractMesh mesh({4, 2}, {"i", "j"});
  const auto explain = [&](auto f, Specs specs) {
    return explain_sharding(make_jaxpr(jit(f, mesh, specs))(kSquare, kSquare));
  };
  // Both operands claim the axis for different factors: the earlier of two equal ones decides.
  EXPECT_THAT(explain([](Array a, Array b) { return matmul(a, b); }, {P("i"), P(none, "i")}),
              HasSubstr("move d from P(none, 'i') to P(): all_gather_invariant over 'i', 256 bytes "
                        "from each device; 'i' splits dim 0 of c, which is more split, larger or "
                        "earlier, and decides"));
  // The operation needs the whole dim.
  EXPECT_THAT(explain([](Array a, Array b) { return cumsum(a, 0) + b; }, {P("i"), P("i")}),
              HasSubstr("the operation needs all of dim 0 on one device"));
  // A part of what each device has already.
  EXPECT_THAT(explain([](Array a, Array b) { return a + b; }, {P("i"), P()}),
              HasSubstr("move d from P() to P('i'): each device keeps its part, nothing is sent; "
                        "dim 0 follows dim 0 of c"));
  // If no rule is known, everything is gathered.
  EXPECT_THAT(explain([](Array a, Array b) { return max(a, 0) + sum(b, 0); }, {P("i"), P("j")}),
              HasSubstr("each device has a part of the largest: dim 0 of c over 'i'"));
}

TEST(ExplainSharding, SumsOfWhichEachDeviceKeepsAPart) {
  const AbstractMesh mesh({4}, {"i"});
  const auto f = [](Array a, Array b) { return matmul(a, b); };
  const auto explain = [&](const P& out) {
    return explain_sharding(
        make_jaxpr(jit(f, mesh, {P(none, "i"), P("i")}, out))(kSquare, kSquare));
  };
  EXPECT_THAT(explain(P("i")), HasSubstr("psum over 'i', 1024 bytes from each device, or rather "
                                         "psum_scatter: each device keeps a part alone\n"));
  EXPECT_THAT(explain(P()), HasSubstr("psum over 'i', 1024 bytes from each device\n"));
}

TEST(ExplainSharding, LoopsAndBranchesAreExplainedInTheirPlaces) {
  const AbstractMesh mesh({4, 2}, {"i", "j"});
  const auto f = [](Array x, Array w) {
    const Array y = fori_loop(
        0, 3, [&](Array, Array c) { return tanh(matmul(c, w)); }, x);
    return cond(
        sum(y) > 0.f, [](Array a) { return a + 1.f; }, [](Array a) { return cumsum(a, 1); }, y);
  };
  const std::string text =
      explain_sharding(make_jaxpr(jit(f, mesh, {P("i", "j"), P()}))(kSquare, kSquare));
  EXPECT_THAT(text, HasSubstr("a carry is split as its init is"));
  EXPECT_THAT(text, HasSubstr("    body {"));
  EXPECT_THAT(text, HasSubstr("branch 0 {"));
  EXPECT_THAT(text, HasSubstr("branch 1 {"));
  EXPECT_THAT(text, HasSubstr("the operation needs all of dim 1 on one device"));
  EXPECT_THAT(text, HasSubstr("makes the result whole: psum over 'j'"));
}

TEST(ExplainSharding, ArgumentsThatLieOnAMeshAndThoseThatWereOnlyTypes) {
  const Mesh mesh = make_mesh({8}, {"i"});
  const auto f = [](Array a, Array b) { return matmul(a, b); };
  const Array a = device_put(ones({16, 16}), NamedSharding(mesh, P("i")));
  EXPECT_THAT(explain_sharding(make_jaxpr(f)(a, ones({16, 16}))),
              HasSubstr("a:f32[16,16]  P('i')  an argument, as it was placed\n"));
  EXPECT_THAT(explain_sharding(make_jaxpr(f)(a, ones({16, 16}))),
              HasSubstr("b:f32[16,16]  P()  an argument, a copy on each device\n"));
  const auto mapped = shard_map(f, mesh, {P("i"), P()}, P("i"));
  const std::string text = explain_sharding(make_jaxpr(mapped)(kSquare, kSquare));
  EXPECT_THAT(text, HasSubstr("a:f32[16,16]  P('i')  an argument, as the program takes it\n"));
  EXPECT_THAT(text, HasSubstr("as the out_specs of the mapped function say"));
  EXPECT_THAT(text, Not(HasSubstr("move")));
}

TEST(ExplainSharding, ProgramsThatAreNotSplit) {
  const auto f = [](Array a) { return a + 1.f; };
  EXPECT_THAT(explain_sharding(make_jaxpr(f)(kSquare)), HasSubstr("names no mesh"));
  const AbstractMesh one({4}, {"i"}), other({2}, {"j"});
  const auto both = [&](Array a) { return jit(f, other, P("j"))(jit(f, one, P("i"))(a)); };
  EXPECT_THAT(explain_sharding(make_jaxpr(both)(kSquare)), HasSubstr("works on another mesh"));
}

}  // namespace
}  // namespace shmap::test
