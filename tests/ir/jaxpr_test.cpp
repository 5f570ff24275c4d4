// Jaxprs: tracing, printing, checking and evaluating.
#include "core/ir/jaxpr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using testing::HasSubstr;

std::string numpy(const ClosedJaxpr& j) { return to_string(j, {.dtype_names = DTypeNames::numpy}); }

template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(MakeJaxpr, PrintsAsTheSeed) {
  const ClosedJaxpr j = make_jaxpr([](Array x) { return 2. * x; })(3.);
  EXPECT_EQ(numpy(j),
            "{ lambda a:float64[] .\n"
            "  let b:float64[] = mul 2.0 a\n"
            "  in ( b ) }");
  EXPECT_EQ(to_string(typecheck(j), {.dtype_names = DTypeNames::numpy}),
            "(float64[]) -> (float64[])");
  EXPECT_EQ(to_string(typecheck(j)), "(f64[]) -> (f64[])");
}

TEST(MakeJaxpr, WithoutOmnistagingOpsOnConstantsRunAtOnce) {
  const auto f = [] { return Array(2.) * Array(2.); };
  EXPECT_EQ(numpy(make_jaxpr(f, {.omnistaging = false})()),
            "{ lambda  .\n"
            "  let \n"
            "  in ( 4.0 ) }");
  EXPECT_EQ(numpy(make_jaxpr(f)()),
            "{ lambda  .\n"
            "  let a:float64[] = mul 2.0 2.0\n"
            "  in ( a ) }");
}

TEST(MakeJaxpr, ShortStyleHasParametersAndVariance) {
  const auto g = [](Array x) { return psum(sum(x), "i"); };
  EXPECT_EQ(to_string(make_jaxpr(g)(ShapedArray({3, 4}, f32, "i"))),
            "{ lambda a:f32[3,4]{i} .\n"
            "  let b:f32[]{i} = reduce_sum[axes=(0, 1)] a\n"
            "      c:f32[] = psum[axes=('i',)] b\n"
            "  in ( c ) }");
  EXPECT_EQ(to_string(typecheck(make_jaxpr(g)(ShapedArray({3, 4}, f32, "i")))),
            "(f32[3,4]{i}) -> (f32[])");
}

TEST(MakeJaxpr, NumpyStyleHangsParameters) {
  const ClosedJaxpr j = make_jaxpr([](Array x) { return sum(x, 0); })(ShapedArray({3, 4}, f64));
  EXPECT_EQ(numpy(j),
            "{ lambda a:float64[3,4] .\n"
            "  let b:float64[4] = reduce_sum [ axes=(0,) ] a\n"
            "  in ( b ) }");
  const ClosedJaxpr two = make_jaxpr([](Array x) { return astype(x, f32); })(ShapedArray({2}, f64));
  EXPECT_EQ(numpy(two),
            "{ lambda a:float64[2] .\n"
            "  let b:float32[2] = convert_element_type [ new_dtype=float32\n"
            "                                            weak_type=False ] a\n"
            "  in ( b ) }");
}

TEST(MakeJaxpr, NamesAreLettersThenPairsOfTwoDifferentOnes) {
  const ClosedJaxpr j = make_jaxpr([](Array x) {
    for (int i = 0; i < 27; ++i) x = x + x;
    return x;
  })(ShapedArray({}, f32));
  const std::string text = to_string(j);
  EXPECT_THAT(text, HasSubstr("z:f32[] = add y y\n      ab:f32[] = add z z\n"));
  EXPECT_THAT(text, HasSubstr("in ( ac ) }"));
}

TEST(MakeJaxpr, CapturesEachConstantOnce) {
  const Array w = array<float>({1, 2, 3}, {3});
  const Array scale = full({}, 3.f) * 1.f;
  const ClosedJaxpr j = make_jaxpr([&](Array x) {
    const Array product = w * x;  // C++ does not say which operand of + is evaluated first
    return product + w * scale;
  })(ShapedArray({3}, f32));
  EXPECT_EQ(to_string(j),
            "{ lambda a:f32[3], b:f32[3] .\n"
            "  let c:f32[3] = mul a b\n"
            "      d:f32[3] = mul a 3.0\n"
            "      e:f32[3] = add c d\n"
            "  in ( e ) }");
  ASSERT_EQ(j.consts().size(), 1u);
  EXPECT_EQ(j.consts()[0].node(), w.node());
  EXPECT_EQ(eval_jaxpr(j, {array<float>({1, 1, 1}, {3})})[0].to_vector<float>(),
            (std::vector<float>{4, 8, 12}));
}

TEST(MakeJaxpr, IsCachedOnFunctionAndTypes) {
  int traces = 0;
  const auto maker = make_jaxpr([&](Array x) {
    ++traces;
    return sin(x);
  });
  const ClosedJaxpr first = maker(ShapedArray({2}, f32));
  EXPECT_EQ(maker(array<float>({1, 2}, {2})), first);
  EXPECT_EQ(traces, 1);
  EXPECT_NE(maker(ShapedArray({3}, f32)), first);
  EXPECT_EQ(traces, 2);
  const auto f = [](Array x) { return cos(x); };
  EXPECT_EQ(make_jaxpr(f)(ShapedArray({2}, f32)), make_jaxpr(f)(ShapedArray({2}, f32)));
}

// What a program may contain depends on the options of the shard_map around its tracing.
TEST(MakeJaxpr, IsTracedAnewUnderOtherOptions) {
  const Mesh mesh = make_mesh({2}, {"i"});
  const auto product = make_jaxpr([](Array x, Array y) { return x * y; });
  std::vector<std::string> texts;
  const auto trace = [&](Array x) {
    texts.push_back(to_string(product(x, psum(x, "i"))));
    return x;
  };
  shard_map(trace, mesh, P("i"), P("i"), {.check_vma = false})(ones({2}));
  shard_map(trace, mesh, P("i"), P("i"))(ones({2}));
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].find("pbroadcast"), std::string::npos) << texts[0];
  EXPECT_NE(texts[1].find("pbroadcast"), std::string::npos) << texts[1];
  EXPECT_THROW(shard_map(trace, mesh, P("i"), P("i"), {.auto_pbroadcast = false})(ones({2})),
               TypeError);
}

TEST(MakeJaxpr, WithAnOuterTracerIsTracedAnew) {
  Array outer;
  const auto maker = make_jaxpr([&](Array x) { return x * outer; });
  const auto f = [&](Array v) {
    outer = v;
    const Array x = ones({2});
    return eval_jaxpr(maker(x), {x})[0];
  };
  for (const float each : {1.f, 2.f})
    EXPECT_EQ(jit([&](Array v) { return f(v); })(full({2}, each)).to_vector<float>(),
              (std::vector<float>{each, each}));
  outer = Array();
}

TEST(MakeJaxpr, TreesGoInAndOut) {
  const ClosedJaxpr j = make_jaxpr([](std::vector<Array> xs, std::pair<Array, Array> p) {
    return std::tuple{xs[0] + xs[1], p.first};
  })(std::vector<ShapedArray>{{{2}, f32}, {{2}, f32}}, std::pair{ShapedArray({3}, i32), 2.f});
  EXPECT_EQ(to_string(typecheck(j)), "(f32[2], f32[2], i32[3], f32[]) -> (f32[2], i32[3])");
}

TEST(MakeJaxpr, ContextIsRestoredAfterAnException) {
  EXPECT_THROW(make_jaxpr([](Array) -> Array { throw std::runtime_error("mine"); })(1.f),
               std::runtime_error);
  const Array x = array<float>({1, 2}, {2});
  EXPECT_EQ((x + 1).to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST(MakeJaxpr, NestedTracesStack) {
  // The inner program closes over a value of the outer one.
  const ClosedJaxpr outer = make_jaxpr([](Array x) {
    const Array y = sin(x);
    const ClosedJaxpr inner = make_jaxpr([&](Array z) { return z * y; })(x);
    EXPECT_EQ(to_string(inner),
              "{ lambda a:f32[2], b:f32[2] .\n"
              "  let c:f32[2] = mul b a\n"
              "  in ( c ) }");
    return eval_jaxpr(inner, {x})[0];
  })(ShapedArray({2}, f32));
  EXPECT_EQ(to_string(outer),
            "{ lambda a:f32[2] .\n"
            "  let b:f32[2] = sin a\n"
            "      c:f32[2] = mul a b\n"
            "  in ( c ) }");
}

TEST(MakeJaxpr, EvaluatorIsTraceable) {
  const auto f = [](Array x) { return sum(exp(x) * 2.f, 0); };
  const ClosedJaxpr j = make_jaxpr(f)(ShapedArray({4}, f32));
  const ClosedJaxpr again =
      make_jaxpr([&](Array x) { return eval_jaxpr(j, {x})[0]; })(ShapedArray({4}, f32));
  EXPECT_EQ(to_string(again), to_string(j));
  const Array x = array<float>({0, 1, 2, 3}, {4});
  EXPECT_EQ(eval_jaxpr(again, {x})[0].item<float>(), f(x).item<float>());
}

TEST(MakeJaxpr, EscapedTracersAndHostReadsAreErrors) {
  Array escaped;
  make_jaxpr([&](Array x) {
    escaped = x + 1;
    return x;
  })(ShapedArray({2}, f32));
  EXPECT_THAT(message_of<TypeError>([&] { escaped + 1; }),
              HasSubstr("made inside a function under make_jaxpr"));
  EXPECT_THAT(
      message_of<TypeError>([] { make_jaxpr([](Array x) { return x.item<float>() * x; })(1.f); }),
      HasSubstr("has no value yet"));
  EXPECT_THAT(message_of<TypeError>(
                  [] { make_jaxpr([](Array x) { return x > 0 ? x : -x; })(ShapedArray({}, f32)); }),
              HasSubstr("has no value yet"));
}

TEST(MakeJaxpr, AShapedArrayIsAnArgumentOfNothingElse) {
  const Mesh mesh = make_mesh({1}, "i");
  const auto f = shard_map([](Array x) { return x; }, mesh, P(), P());
  EXPECT_THAT(message_of<TypeError>([&] { f(ShapedArray({2}, f32)); }),
              HasSubstr("stands for an argument in make_jaxpr only"));
}

// ---- by hand
struct HandBuilt {
  VarRef a = make_ref<const Var>(ShapedArray({2, 3}, f32));
  Ref<Jaxpr> jaxpr = make_ref<Jaxpr>();
  HandBuilt() { jaxpr->binders = {a}; }
  VarRef add(const Primitive& p, std::vector<Atom> in, ShapedArray type,
             std::shared_ptr<const Params> params = std::make_shared<Params>()) {
    VarRef out = make_ref<const Var>(type);
    jaxpr->eqns.push_back({&p, std::move(in), std::move(params), {out}, {}});
    return out;
  }
};

TEST(Typecheck, AcceptsAJaxprThatWasBuiltByHand) {
  ensure_started();
  HandBuilt h;
  const VarRef b = h.add(sin_p, {h.a}, ShapedArray({2, 3}, f32));
  const VarRef c =
      h.add(reduce_sum_p, {b}, ShapedArray({3}, f32), std::make_shared<ReduceParams>(Dims{0}));
  h.jaxpr->outs = {c};
  EXPECT_EQ(to_string(typecheck_jaxpr(*h.jaxpr)), "(f32[2,3]) -> (f32[3])");
  const ClosedJaxpr closed = close_jaxpr(h.jaxpr, {});
  EXPECT_EQ(eval_jaxpr(closed, {zeros({2, 3})})[0].to_vector<float>(), std::vector<float>(3, 0.f));
}

TEST(Typecheck, FindsUnboundVariables) {
  ensure_started();
  HandBuilt h;
  const VarRef stray = make_ref<const Var>(ShapedArray({2, 3}, f32));
  h.jaxpr->outs = {h.add(add_p, {h.a, stray}, ShapedArray({2, 3}, f32))};
  EXPECT_THAT(message_of<TypeError>([&] { typecheck_jaxpr(*h.jaxpr); }),
              HasSubstr("unbound variable of type f32[2,3] in an equation of add"));
  HandBuilt outs;
  outs.jaxpr->outs = {stray};
  EXPECT_THAT(message_of<TypeError>([&] { typecheck_jaxpr(*outs.jaxpr); }),
              HasSubstr("unbound variable of type f32[2,3] in the results"));
}

TEST(Typecheck, FindsVariablesThatAreBoundTwice) {
  ensure_started();
  HandBuilt twice;
  twice.jaxpr->binders = {twice.a, twice.a};
  EXPECT_THAT(message_of<TypeError>([&] { typecheck_jaxpr(*twice.jaxpr); }),
              HasSubstr("bound twice"));
  HandBuilt h;
  h.add(sin_p, {h.a}, ShapedArray({2, 3}, f32));
  h.jaxpr->eqns.push_back(h.jaxpr->eqns[0]);
  EXPECT_THAT(message_of<TypeError>([&] { typecheck_jaxpr(*h.jaxpr); }),
              HasSubstr("bound twice, the second time as a result of an equation of sin"));
}

TEST(Typecheck, FindsMistypedVariables) {
  ensure_started();
  HandBuilt h;
  h.add(sin_p, {h.a}, ShapedArray({3, 2}, f32));
  EXPECT_THAT(message_of<TypeError>([&] { typecheck_jaxpr(*h.jaxpr); }),
              HasSubstr("an equation of sin gives a value of type f32[2,3] to a variable of type "
                        "f32[3,2]"));
  HandBuilt dtypes;
  const VarRef b = make_ref<const Var>(ShapedArray({2, 3}, i32));
  dtypes.jaxpr->binders.push_back(b);
  dtypes.add(add_p, {dtypes.a, b}, ShapedArray({2, 3}, f32));
  EXPECT_THROW(typecheck_jaxpr(*dtypes.jaxpr), TypeError);
}

TEST(Typecheck, OperandsVaryAlike) {
  ensure_started();
  const detail::AxisEnv* env = detail::AxisEnv::intern({"i"}, {8});
  const ShapedArray varying = ShapedArray({4}, f32).with_axes(AxisSet(env, 1));
  auto j = make_ref<Jaxpr>();
  j->env = env;
  const VarRef a = make_ref<const Var>(varying), b = make_ref<const Var>(ShapedArray({4}, f32));
  const VarRef c = make_ref<const Var>(varying);
  j->binders = {a, b};
  j->eqns.push_back({&mul_p, {a, b}, std::make_shared<Params>(), {c}, {}});
  j->outs = {c};
  EXPECT_THAT(message_of<TypeError>([&] { typecheck_jaxpr(*j); }),
              HasSubstr("f32[4]{i} and f32[4], which vary over unlike mesh axes"));
  j->checks_variance = false;
  EXPECT_EQ(to_string(typecheck_jaxpr(*j)), "(f32[4]{i}, f32[4]) -> (f32[4]{i})");
}

TEST(EvalJaxpr, RefusesOtherArguments) {
  const ClosedJaxpr j = make_jaxpr([](Array x) { return sin(x); })(ShapedArray({2}, f32));
  EXPECT_THAT(message_of<ValueError>([&] { eval_jaxpr(j, {}); }),
              HasSubstr("takes 1 argument, and 0 were given"));
  EXPECT_THAT(message_of<TypeError>([&] { eval_jaxpr(j, {zeros({3})}); }),
              HasSubstr("args[0] has type f32[3], and the program's argument has type f32[2]"));
}

}  // namespace
}  // namespace shmap
