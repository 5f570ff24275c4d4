// Programs whose variance is not checked (ShardMapOptions::check_vma off): a variable may say that
// it varies over more axes than it does, and the passes over programs leave that as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/compiler/fusion/fuse.h"
#include "core/compiler/passes/inline_calls.h"
#include "core/compiler/passes/schedule.h"
#include "core/compiler/passes/simplify.h"
#include "core/ir/jaxpr.h"
#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/transforms/control_flow/unroll.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

const detail::AxisEnv* env() { return detail::AxisEnv::intern({"i", "j"}, {4, 2}); }
constexpr std::uint32_t kNone = 0, kI = 1, kBoth = 3;

ShapedArray type_of(Shape shape, std::uint32_t axes) {
  return ShapedArray(shape, f32).with_axes(AxisSet(env(), axes));
}

struct Program {
  Ref<Jaxpr> jaxpr = make_ref<Jaxpr>();
  explicit Program(bool checked) {
    ensure_started();
    jaxpr->env = env();
    jaxpr->checks_variance = checked;
  }
  VarRef argument(Shape shape, std::uint32_t axes) {
    jaxpr->binders.push_back(make_ref<const Var>(type_of(shape, axes)));
    return jaxpr->binders.back();
  }
  VarRef add(const Primitive& p, std::vector<Atom> in, ShapedArray type,
             std::shared_ptr<const Params> params = std::make_shared<Params>()) {
    VarRef out = make_ref<const Var>(type);
    jaxpr->eqns.push_back({&p, std::move(in), std::move(params), {out}, {}});
    return out;
  }
};

TEST(UncheckedPrograms, AVariableMayDeclareMoreAxes) {
  for (const bool checked : {false, true}) {
    Program p(checked);
    const VarRef x = p.argument({4}, kI);
    p.jaxpr->outs = {p.add(sin_p, {x}, type_of({4}, kBoth))};
    if (checked) {
      test::expect_error<TypeError>([&] { typecheck_jaxpr(*p.jaxpr); },
                                    {"sin", "f32[4]{i}", "f32[4]{i,j}"});
    } else {
      EXPECT_EQ(to_string(typecheck_jaxpr(*p.jaxpr)), "(f32[4]{i}) -> (f32[4]{i,j})");
    }
  }
}

TEST(UncheckedPrograms, AVariableMayNotDeclareFewerNorOthers) {
  for (const std::uint32_t declared : {kNone, std::uint32_t{2}}) {
    Program p(false);
    const VarRef x = p.argument({4}, kI);
    p.jaxpr->outs = {p.add(sin_p, {x}, type_of({4}, declared))};
    test::expect_error<TypeError>([&] { typecheck_jaxpr(*p.jaxpr); }, {"sin", "f32[4]{i}"});
  }
  Program shape(false);
  const VarRef x = shape.argument({4}, kI);
  shape.jaxpr->outs = {shape.add(sin_p, {x}, type_of({5}, kBoth))};
  EXPECT_THROW(typecheck_jaxpr(*shape.jaxpr), TypeError);
}

// sum(sin(x) * sin(x) + cos(y)), in which the first sin declares more than it has and the second
// one does not; y varies like that.
Program wide_program() {
  Program p(false);
  const VarRef x = p.argument({4}, kI), y = p.argument({4}, kNone);
  const VarRef wide = p.add(sin_p, {x}, type_of({4}, kBoth));
  const VarRef own = p.add(sin_p, {x}, type_of({4}, kI));
  const VarRef square = p.add(mul_p, {own, own}, type_of({4}, kI));
  const VarRef product = p.add(mul_p, {wide, square}, type_of({4}, kBoth));
  const VarRef other = p.add(cos_p, {y}, type_of({4}, kI));
  const VarRef unused = p.add(exp_p, {other}, type_of({4}, kBoth));
  const VarRef both = p.add(add_p, {product, other}, type_of({4}, kBoth));
  const VarRef total =
      p.add(reduce_sum_p, {both}, type_of({}, kBoth), std::make_shared<ReduceParams>(Dims{0}));
  p.jaxpr->outs = {total, square};
  return p;
}

JaxprRef optimized(const JaxprRef& jaxpr) {
  const JaxprRef inlined = inline_calls(*jaxpr);
  const JaxprRef simple = simplify(*inlined);
  const JaxprRef unrolled = unroll(*simple);
  const JaxprRef fused = fuse(*unrolled);
  const JaxprRef last = schedule(*fused);
  for (const JaxprRef& j : {inlined, simple, unrolled, fused, last}) {
    EXPECT_FALSE(j->checks_variance);
    EXPECT_EQ(to_string(typecheck_jaxpr(*j)), to_string(typecheck_jaxpr(*jaxpr)));
  }
  return last;
}

TEST(UncheckedPrograms, KeepTheirTypesThroughAllPasses) {
  const Program p = wide_program();
  EXPECT_EQ(to_string(typecheck_jaxpr(*p.jaxpr)), "(f32[4]{i}, f32[4]) -> (f32[]{i,j}, f32[4]{i})");
  const JaxprRef last = optimized(p.jaxpr);
  EXPECT_LT(last->eqns.size(), p.jaxpr->eqns.size());  // what is unused, and fused
}

TEST(UncheckedPrograms, HaveTheirValuesInABody) {
  const Program p = wide_program();
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto run = [&](const JaxprRef& jaxpr, bool jitted) {
    const ClosedJaxpr closed = close_jaxpr(jaxpr, {});
    const auto body = [closed](Array x, Array y) {
      const std::vector<Array> out = eval_jaxpr(closed, {x, y});
      return reshape(out[0], {1}) + out[1];
    };
    const auto f = shard_map(body, mesh, {P("i"), P()}, P("i"), {.check_vma = false});
    const Array x = arange(16) * .25f, y = arange(4) * .5f;
    return (jitted ? jit(f)(x, y) : f(x, y)).to_vector<float>();
  };
  const Array x = arange(16) * .25f, y = arange(4) * .5f;
  const Array s = reshape(sin(x), {4, 4});
  const Array want = sum(s * (s * s) + cos(y), 1, true) + s * s;
  const std::vector<float> wanted = reshape(want, {16}).to_vector<float>();
  for (const JaxprRef& jaxpr : {JaxprRef(p.jaxpr), optimized(p.jaxpr)}) {
    for (const bool jitted : {false, true}) {
      const std::vector<float> got = run(jaxpr, jitted);
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], wanted[k], 1e-5) << k;
    }
  }
}

}  // namespace
}  // namespace shmap
