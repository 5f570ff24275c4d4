// shmap-test: devices
// Programs built by hand, and the errors of invalid ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/array/mesh_impl.h"
#include "core/device/backend.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using extend::JaxprBuilder;
using extend::Var;
using test::expect_error;
using testing::ElementsAre;

TEST(JaxprBuilderTest, BuildsWhatTracingBuilds) {
  JaxprBuilder b;
  const Var x = b.input(ShapedArray({2, 3}, f32));
  const Var s = b.eqn("sin", {x})[0];
  const Var m = b.eqn("mul", {s, 2.f})[0];
  const Var r = b.eqn("reduce_sum", {m}, {{"axes", {1}}})[0];
  const ClosedJaxpr made = b.build(r);
  const auto f = [](Array v) { return sum(sin(v) * 2.f, 1); };
  EXPECT_EQ(to_string(made), to_string(make_jaxpr(f)(ShapedArray({2, 3}, f32))));
  const Array v = reshape(arange(6.f), {2, 3});
  EXPECT_EQ(eval_jaxpr(made, {v})[0].to_vector<float>(), f(v).to_vector<float>());
  EXPECT_EQ(typecheck(made), JaxprType({ShapedArray({2, 3}, f32)}, {ShapedArray({2}, f32)}));
}

TEST(JaxprBuilderTest, ClosesOverArraysAndHoldsPrograms) {
  JaxprBuilder body;
  const Var carry = body.input(ShapedArray({3}, f32));
  const ClosedJaxpr step = body.build(body.eqn("cos", {carry}));

  JaxprBuilder b;
  const Array w = arange(3.f);
  const Var c = b.constant(w), x = b.input(ShapedArray({3}, f32));
  EXPECT_TRUE(b.constant(w) == c);
  const Var y = b.eqn("add", {x, c})[0];
  const Var z =
      b.eqn("scan", {y}, {{"jaxpr", step}, {"length", 5}, {"num_carry", 1}, {"num_consts", 0}})[0];
  const ClosedJaxpr made = b.build({z, y});
  ASSERT_EQ(made.consts().size(), 1u);
  Array want = w + 1.f;
  for (int k = 0; k < 5; ++k) want = cos(want);
  const std::vector<Array> out = eval_jaxpr(made, {ones({3})});
  EXPECT_EQ(out[0].to_vector<float>(), want.to_vector<float>());
  EXPECT_THAT(out[1].to_vector<float>(), ElementsAre(1, 2, 3));
}

// The text that `run` prints, after all of its queued work is done.
template <class F>
std::string printed(F run) {
  testing::internal::CaptureStdout();
  for (const Array& x : run()) x.block_until_ready();
  detail::MeshImpl::default_device()->backend().synchronize();
  return testing::internal::GetCapturedStdout();
}

// The second print needs less than the first one, and neither has a result that anything uses.
TEST(JaxprBuilderTest, EffectsKeepTheirOrder) {
  JaxprBuilder b;
  const Var x = b.input(ShapedArray({2}, f32));
  const Var y = b.eqn("mul", {b.eqn("sin", {b.eqn("mul", {x, 0.f})[0]})[0], 2.f})[0];
  EXPECT_TRUE(b.eqn("debug_print", {y, x}, {{"fmt", "first y = {}, x = {}"}}).empty());
  b.eqn("debug_print", {}, {{"fmt", "between"}});
  b.eqn("debug_print", {x}, {{"fmt", "second {}"}});
  const ClosedJaxpr made = b.build(b.eqn("add", {x, 1.f}));
  EXPECT_EQ(to_string(extend::parse_jaxpr(to_string(made))), to_string(made));

  const std::string want = "first y = [0. 0.], x = [1. 2.]\nbetween\nsecond [1. 2.]\n";
  const Array v = array<float>({1, 2}, {2});
  const auto run = [&](Array a) { return eval_jaxpr(made, {a}); };
  EXPECT_EQ(printed([&] { return run(v); }), want);
  const auto fast = jit(run);
  for (int call = 0; call < 4; ++call)  // traced, captured, replayed
    EXPECT_EQ(printed([&] { return fast(v); }), want) << "call " << call;
  const auto user = [](const extend::Eqn& e, extend::Arrays in) { return extend::bind(e, in); };
  EXPECT_EQ(printed([&] { return extend::interpret(made, {v}, user); }), want);
  EXPECT_EQ(fast(v)[0].to_vector<float>(), std::vector<float>({2, 3}));

  // Prints in the body of a loop, and beside it.
  JaxprBuilder body;
  const Var carry = body.input(ShapedArray({}, f32));
  body.eqn("debug_print", {carry}, {{"fmt", "carry {}"}});
  body.eqn("debug_print", {}, {{"fmt", "next"}});
  const ClosedJaxpr step = body.build(body.eqn("add", {carry, 1.f}));
  JaxprBuilder outer;
  const Var start = outer.input(ShapedArray({}, f32));
  outer.eqn("debug_print", {start}, {{"fmt", "from {}"}});
  const Var end = outer.eqn(
      "scan", {start}, {{"jaxpr", step}, {"length", 2}, {"num_carry", 1}, {"num_consts", 0}})[0];
  outer.eqn("debug_print", {end}, {{"fmt", "to {}"}});
  const ClosedJaxpr loop = outer.build(end);
  const auto go = [&](Array a) { return eval_jaxpr(loop, {a}); };
  const std::string looped = "from 5.0\ncarry 5.0\nnext\ncarry 6.0\nnext\nto 7.0\n";
  EXPECT_EQ(printed([&] { return go(full({}, 5.f)); }), looped);
  const auto fast_loop = jit(go);
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(printed([&] { return fast_loop(full({}, 5.f)); }), looped) << "call " << call;
}

TEST(JaxprBuilderTest, BodiesOfShardMapsHaveCollectives) {
  const Mesh mesh = make_mesh({8}, {"i"});
  JaxprBuilder body(mesh);
  const Var x = body.input(ShapedArray({1, 4}, f32, "i"));
  const ClosedJaxpr block = body.build(body.eqn("psum", {x}, {{"axes", {"i"}}}));
  JaxprBuilder b;
  const Var g = b.input(ShapedArray({8, 4}, f32));
  const ClosedJaxpr made = b.build(b.eqn("shard_map", {g},
                                         {{"jaxpr", block},
                                          {"mesh", "Mesh('i': 8)"},
                                          {"in_specs", "(P('i', none),)"},
                                          {"out_specs", "(P(),)"}}));
  const auto f = shard_map([](Array v) { return psum(v, "i"); }, mesh, P("i", none), P());
  EXPECT_EQ(to_string(made), to_string(make_jaxpr(f)(ShapedArray({8, 4}, f32))));
  const Array v = reshape(arange(32.f), {8, 4});
  EXPECT_EQ(eval_jaxpr(made, {v})[0].to_vector<float>(), f(v).to_vector<float>());

  expect_error<TypeError>(
      [&] {
        b.eqn("shard_map", {g},
              {{"jaxpr", block},
               {"mesh", "Mesh('j': 8)"},
               {"in_specs", "(P('j'),)"},
               {"out_specs", "(P(),)"}});
      },
      {"its body was not built for the mesh 'j': 8"});
  expect_error<CollectiveError>(
      [&] {
        b.eqn("psum", {g}, {{"axes", {"i"}}});
      },
      {"psum outside of every shard_map body"});
  expect_error<CollectiveError>(
      [&] {
        body.eqn("psum", {x}, {{"axes", {"k"}}});
      },
      {"psum: unbound axis name 'k'"});
  const Var y = body.input(ShapedArray({1, 4}, f32));
  expect_error<TypeError>(
      [&] {
        body.eqn("add", {x, y});
      },
      {"vary over unlike mesh axes", "pbroadcast", "jaxpr_builder_test.cpp:"});
}

TEST(JaxprBuilderTest, SaysWhatIsUnboundReboundMistypedOrLeaked) {
  JaxprBuilder b, other;
  const Var x = b.input(ShapedArray({3}, f32));
  const Var foreign = other.input(ShapedArray({4}, f32));
  const Var free = b.var(ShapedArray({3}, f32)), wrong = b.var(ShapedArray({4}, f32));
  expect_error<TypeError>(
      [&] { b.eqn("sin", {free}); },
      {"unbound variable of type f32[3] in an equation of sin", "jaxpr_builder_test.cpp:"});
  expect_error<TypeError>([&] { b.build({free}); }, {"unbound variable", "the results"});
  expect_error<TypeError>([&] { b.eqn("sin", {foreign}); },
                          {"f32[4] in an equation of sin is of another program: it leaked"});
  expect_error<TypeError>([&] { b.build(foreign); }, {"leaked"});
  expect_error<TypeError>([&] { b.eqn_into({wrong}, "sin", {x}); },
                          {"an equation of sin gives a value of type f32[3] to a variable of "
                           "type f32[4]"});
  expect_error<TypeError>([&] { b.eqn_into({x}, "sin", {x}); },
                          {"f32[3] is bound twice, the second time by an equation of sin"});
  expect_error<TypeError>([&] { b.eqn_into({}, "sin", {x}); },
                          {"is to bind 0 variables, and has 1 result"});
  expect_error<TypeError>([&] { b.eqn_into({foreign}, "sin", {x}); }, {"leaked"});
  b.eqn_into({free}, "sin", {x});
  expect_error<TypeError>([&] { b.eqn_into({free}, "cos", {x}); }, {"bound twice"});
  EXPECT_THROW(b.eqn("sin", {Var()}), ValueError);

  expect_error<ValueError>([&] { b.eqn("sine", {x}); },
                           {"no primitive 'sine'", "jaxpr_builder_test.cpp:"});
  expect_error<ValueError>([&] { b.eqn("sin", {x, x}); }, {"sin: 2 operands, and it takes 1"});
  expect_error<ValueError>(
      [&] {
        b.eqn("reduce_sum", {x}, {{"axes", {7}}});
      },
      {"7", "jaxpr_builder_test.cpp:"});
  expect_error<TypeError>([&] { b.eqn("add", {x, 1}); }, {"f32", "i32"});
  expect_error<TypeError>([&] { b.input(ShapedArray({3}, f32, "i")); }, {"give the builder"});
  // Refused equations and inputs left no trace.
  EXPECT_EQ(to_string(b.build(free)), "{ lambda a:f32[3] .\n  let b:f32[3] = sin a\n  in ( b ) }");
}

TEST(JaxprBuilderTest, TracedValuesAreNoConstants) {
  JaxprBuilder b;
  make_jaxpr([&](Array x) {
    expect_error<TypeError>([&] { b.constant(x); }, {"would leak from its trace"});
    return x;
  })(ShapedArray({3}, f32));
  EXPECT_THROW(b.constant(1.f), TypeError);
  EXPECT_THROW(extend::Literal(arange(3)), TypeError);
}

TEST(JaxprBuilderTest, ControlFlowIsCheckedBeforeItIsRead) {
  JaxprBuilder body;
  const Var c = body.input(ShapedArray({3}, f32));
  const ClosedJaxpr step = body.build(body.eqn("cos", {c}));
  JaxprBuilder b;
  const Var x = b.input(ShapedArray({3}, f32));
  const auto scan = [&](int carry, int consts) {
    b.eqn("scan", {x},
          {{"jaxpr", step}, {"length", 2}, {"num_carry", carry}, {"num_consts", consts}});
  };
  EXPECT_THROW(scan(2, 0), ValueError);
  EXPECT_THROW(scan(1, 1), ValueError);
  EXPECT_THROW(scan(-1, 0), ValueError);
  EXPECT_THROW(b.eqn("jit", {x, x}, {{"jaxpr", step}}), TypeError);
  EXPECT_THROW(b.eqn("cond", {x, x}, {{"branches[0]", step}}), Error);
  EXPECT_THROW(b.eqn("while", {x}, {{"body_jaxpr", step}, {"cond_jaxpr", step}}), TypeError);
  EXPECT_THROW(b.eqn("scan", {x}, {{"jaxpr", 3}, {"length", 2}, {"num_carry", 1}}), TypeError);
  JaxprBuilder closed;
  const Var k = closed.constant(arange(3.f)), in = closed.input(ShapedArray({3}, f32));
  const ClosedJaxpr closure = closed.build(closed.eqn("add", {in, k}));
  expect_error<TypeError>([&] { b.eqn("jit", {x}, {{"jaxpr", closure}}); }, {"closes over"});
}

}  // namespace
}  // namespace shmap
