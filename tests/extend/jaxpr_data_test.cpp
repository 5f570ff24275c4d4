// shmap-test: devices
// Programs as data: equations, variables, parameters, programs inside; interpreters of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/extend/param_reader.h"
#include "core/ir/trace.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using extend::Arrays;
using test::expect_error;
using testing::ElementsAre;
using testing::HasSubstr;

ClosedJaxpr small_program() {
  return make_jaxpr([](Array x, Array y) { return sum(sin(x) * 2.f + y, 1); })(
      ShapedArray({2, 3}, f32), ShapedArray({2, 3}, f32));
}

TEST(JaxprDataTest, EquationsShowPrimitivesOperandsResultsAndLines) {
  const ClosedJaxpr jaxpr = small_program();
  std::ostringstream names;
  for (const extend::Eqn& e : extend::eqns(jaxpr)) names << e.primitive() << " ";
  EXPECT_EQ(names.str(), "sin mul add reduce_sum ");
  const std::vector<extend::Eqn> eqns = extend::eqns(jaxpr);
  EXPECT_TRUE(eqns[0].primitive() == "sin");
  EXPECT_TRUE(eqns[0].primitive() == extend::primitive("sin"));
  EXPECT_FALSE(eqns[1].primitive() == extend::primitive("sin"));
  EXPECT_TRUE(eqns[0].inputs()[0].var() == extend::in_vars(jaxpr)[0]);
  EXPECT_TRUE(eqns[1].inputs()[0].var() == eqns[0].outputs()[0]);
  ASSERT_TRUE(eqns[1].inputs()[1].is_literal());
  EXPECT_EQ(eqns[1].inputs()[1].literal().value().item<float>(), 2.f);
  EXPECT_EQ(eqns[1].inputs()[1].type(), ShapedArray({}, f32));
  EXPECT_EQ(eqns[3].outputs()[0].type(), ShapedArray({2}, f32));
  EXPECT_TRUE(extend::out_atoms(jaxpr)[0].var() == eqns[3].outputs()[0]);
  EXPECT_THAT(eqns[0].source().str(), HasSubstr("jaxpr_data_test.cpp:"));
  EXPECT_THROW(eqns[0].inputs()[0].literal(), ValueError);
  EXPECT_THROW(eqns[1].inputs()[1].var(), ValueError);
}

TEST(JaxprDataTest, ParametersAreTypedAndNamed) {
  const extend::Eqn e = extend::eqns(small_program())[3];
  EXPECT_THAT(e.param_names(), ElementsAre("axes"));
  EXPECT_EQ(e.param<std::vector<int>>("axes"), std::vector<int>{1});
  EXPECT_EQ(e.param<Dims>("axes").size(), 1u);
  expect_error<ValueError>([&] { e.param<int>("axis"); },
                           {"reduce_sum: there is no parameter 'axis' (did you mean 'axes'?)",
                            "it has axes", "jaxpr_data_test.cpp:"});
  expect_error<TypeError>(
      [&] { e.param<std::string>("axes"); },
      {"reduce_sum: the parameter 'axes' is (1,), and a text is wanted", "jaxpr_data_test.cpp:"});
}

TEST(JaxprDataTest, ParametersOfEveryTypeAreRead) {
  extend::ParamValue v = 300;
  std::int64_t wide = 0;
  std::uint8_t narrow = 0;
  EXPECT_TRUE(v.read(wide));
  EXPECT_EQ(wide, 300);
  EXPECT_FALSE(v.read(narrow));
  EXPECT_EQ(to_string(extend::ParamValue({0, 1})), "(0, 1)");
  EXPECT_EQ(to_string(extend::ParamValue({"i"})), "('i',)");
  EXPECT_EQ(to_string(extend::ParamValue(0.1)), "0.1");
  EXPECT_EQ(to_string(extend::ParamValue("it's\n")), "'it\\'s\\n'");
  EXPECT_EQ(to_string(extend::ParamValue(extend::ParamValue::Pairs{{0, 1}})), "((0, 1),)");
  EXPECT_EQ(to_string(extend::ParamValue(bf16)), "bfloat16");
  for (const char* text : {"True", "3", "-4", "0.5", "1e-05", "'a b'", "()", "(1,)", "(1, 2)",
                           "('i',)", "((0, 1), ())", "float32"})
    EXPECT_EQ(to_string(value_of_text(text)), text);
  EXPECT_EQ(to_string(value_of_text("clip")), "'clip'");
  EXPECT_EQ(to_string(value_of_text("P('i')")), "'P(\\'i\\')'");
  std::vector<std::string> none;
  EXPECT_TRUE(extend::ParamValue(std::vector<std::int64_t>{}).read(none));
}

TEST(JaxprDataTest, ProgramsInsideAndConstantsAreShown) {
  const Array w = arange(3.f);
  const ClosedJaxpr jaxpr = make_jaxpr([&](Array x) {
    return fori_loop(
        0, 4, [](Array, Array c) { return sin(c); }, x + w);
  })(ShapedArray({3}, f32));
  ASSERT_EQ(extend::constvars(jaxpr).size(), 1u);
  EXPECT_EQ(extend::consts(jaxpr)[0].node(), w.node());
  EXPECT_EQ(extend::in_vars(jaxpr).size(), 1u);
  bool found = false;
  for (const extend::Eqn& e : extend::eqns(jaxpr)) {
    if (!(e.primitive() == "scan")) continue;
    found = true;
    EXPECT_EQ(e.param<int>("length"), 4);
    ASSERT_EQ(e.sub_jaxprs().size(), 1u);
    EXPECT_EQ(to_string(e.sub_jaxprs()[0]), to_string(e.param<ClosedJaxpr>("jaxpr")));
  }
  EXPECT_TRUE(found);
}

TEST(JaxprDataTest, PrimitivesAreFoundByNameAndBoundWithParameters) {
  const Array x = reshape(arange(6.f), {2, 3});
  const Arrays y = extend::primitive("reduce_sum").bind({x}, {{"axes", {1}}});
  EXPECT_THAT(y.at(0).to_vector<float>(), ElementsAre(3, 12));
  EXPECT_THAT(extend::primitive("add").bind({x, x})[0].to_vector<float>(),
              ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(extend::primitive("convert_element_type")
                  .bind({x}, {{"new_dtype", i32}})[0]
                  .to_vector<std::int32_t>(),
              ElementsAre(0, 1, 2, 3, 4, 5));
  expect_error<ValueError>(
      [] { extend::primitive("redce_sum"); },
      {"no primitive 'redce_sum' (did you mean 'reduce_sum'?)", "jaxpr_data_test.cpp:"});
  expect_error<ValueError>(
      [&] {
        extend::primitive("reduce_sum").bind({x}, {{"axis", {1}}});
      },
      {"reduce_sum: the parameter 'axes' is missing"});
  expect_error<ValueError>(
      [&] {
        extend::primitive("reduce_sum").bind({x}, {{"axes", {1}}, {"keepdims", true}});
      },
      {"reduce_sum: there is no parameter 'keepdims'", "it has axes", "jaxpr_data_test.cpp:"});
  expect_error<TypeError>(
      [&] {
        extend::primitive("reduce_sum").bind({x}, {{"axes", true}});
      },
      {"reduce_sum: the parameter 'axes' is True, and a list of integers"});
  expect_error<ValueError>([&] { extend::primitive("add").bind({x}); },
                           {"add: 1 operand, and it takes 2"});
  expect_error<ValueError>([&] { extend::primitive("fused").bind({x}); },
                           {"fused: an equation of it cannot be made"});
}

// Every primitive must define how its parameters are given by name.
TEST(JaxprDataTest, EveryPrimitiveHasASyntax) {
  ensure_started();
  for (const Primitive* p : all_primitives())
    EXPECT_STRNE(p->syntax.refused, Primitive().syntax.refused) << p->name << ": set its syntax";
}

TEST(InterpreterTest, BindRunsOneEquationInWhateverTraceIsCurrent) {
  const extend::Eqn e =
      extend::eqns(make_jaxpr([](Array x) { return sin(x); })(ShapedArray({3}, f32)))[0];
  const Array x = arange(3.f);
  EXPECT_EQ(extend::bind(e, {x})[0].to_vector<float>(), sin(x).to_vector<float>());
  EXPECT_EQ(to_string(make_jaxpr([&](Array v) { return extend::bind(e, {v})[0]; })(x)),
            to_string(make_jaxpr([](Array v) { return sin(v); })(x)));
  EXPECT_EQ(grad([&](Array v) { return sum(extend::bind(e, {v})[0]); })(x).to_vector<float>(),
            cos(x).to_vector<float>());
  EXPECT_EQ(vmap([&](Array v) { return extend::bind(e, {v})[0]; })(x).to_vector<float>(),
            sin(x).to_vector<float>());
  expect_error<ValueError>([&] { extend::bind(e, {}); },
                           {"an equation of sin has 1 operand, and was given 0"});
}

TEST(InterpreterTest, ARuleStandsForEveryEquation) {
  const ClosedJaxpr jaxpr = small_program();
  const Array x = reshape(arange(6.f), {2, 3}), y = ones({2, 3});
  const auto plain = [](const extend::Eqn& e, Arrays in) { return extend::bind(e, in); };
  EXPECT_EQ(extend::interpret(jaxpr, {x, y}, plain)[0].to_vector<float>(),
            eval_jaxpr(jaxpr, {x, y})[0].to_vector<float>());
  const auto cosines = [](const extend::Eqn& e, Arrays in) {
    return e.primitive() == "sin" ? Arrays{cos(in[0])} : extend::bind(e, in);
  };
  EXPECT_EQ(extend::interpret(jaxpr, {x, y}, cosines)[0].to_vector<float>(),
            sum(cos(x) * 2.f + y, 1).to_vector<float>());
  // interpret is traced like any other code.
  EXPECT_EQ(to_string(make_jaxpr([&](Array a, Array b) {
              return extend::interpret(jaxpr, {a, b}, plain)[0];
            })(x, y)),
            to_string(jaxpr));
  expect_error<ValueError>([&] { extend::interpret(jaxpr, {x}, plain); },
                           {"takes 2 arguments, and 1 was given"});
  expect_error<ValueError>(
      [&] {
        extend::interpret(jaxpr, {x, y}, [](const extend::Eqn&, Arrays) { return Arrays{}; });
      },
      {"the rule gave 0 results for an equation of sin, which has 1"});
}

TEST(InterpreterTest, EffectsKeepTheirOrder) {
  const auto f = [](Array x) {
    debug::print("first {}", x);
    const Array y = sin(x) * 0.f;
    debug::print("second {}", y);
    debug::print("third");
    return y;
  };
  const ClosedJaxpr jaxpr = make_jaxpr(f)(ShapedArray({}, f32));
  std::vector<std::string> seen;
  testing::internal::CaptureStdout();
  const Arrays out =
      extend::interpret(jaxpr, {full({}, 1.f)}, [&](const extend::Eqn& e, Arrays in) {
        if (e.has_effect()) seen.push_back(e.param<std::string>("fmt"));
        return extend::bind(e, in);
      });
  out[0].block_until_ready();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "first 1.0\nsecond 0.0\nthird\n");
  EXPECT_THAT(seen, ElementsAre("\"first {}\"", "\"second {}\"", "\"third\""));
  // The same under jit.
  auto again = jit([&](Array x) {
    return extend::interpret(
        jaxpr, {x}, [](const extend::Eqn& e, Arrays in) { return extend::bind(e, in); })[0];
  });
  testing::internal::CaptureStdout();
  again(full({}, 1.f)).block_until_ready();
  again(full({}, 1.f)).block_until_ready();
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_LT(text.find("first"), text.find("second"));
  EXPECT_LT(text.find("second"), text.find("third"));
}

TEST(InterpreterTest, EnvironmentsHoldOneValueForAVariable) {
  const ClosedJaxpr jaxpr = small_program();
  const extend::Var x = extend::in_vars(jaxpr)[0], y = extend::in_vars(jaxpr)[1];
  extend::Environment<int> env;
  env.write(x, 3);
  EXPECT_TRUE(env.contains(x));
  EXPECT_FALSE(env.contains(y));
  EXPECT_EQ(env.read(x), 3);
  expect_error<ValueError>([&] { env.read(y); }, {"f32[2,3] has no value"});
  expect_error<ValueError>([&] { env.write(x, 4); }, {"a value twice"});
  expect_error<ValueError>([&] { env.write({x, y}, {1}); }, {"1 value for 2 variables"});
}

}  // namespace
}  // namespace shmap
