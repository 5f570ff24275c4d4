// Values that are computed again late instead of being kept: which ones, and that the peak falls.
#include "core/compiler/fusion/rematerialize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "core/compiler/fusion/fuse.h"
#include "core/compiler/passes/inline_calls.h"
#include "core/compiler/passes/lifetimes.h"
#include "core/compiler/passes/schedule.h"
#include "core/compiler/passes/simplify.h"
#include "core/ir/node.h"
#include "core/runtime/fused_program.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kRows = 512;  // rows × rows floats are 1 MiB
constexpr std::int64_t kWide = 8 * kRows;

ShapedArray floats(const Shape& shape) { return {shape, f32}; }
const ShapedArray kSquare = floats({kRows, kRows});

// Most of the work, and at its middle 8 MiB beside the operand and the result.
Array wide(const Array& x, const Array& v) { return einsum("ab,cb->ac", matmul(x, v), v); }

// The program of f(x, v) or f(x, w, v), of squares x and w and a wide v.
template <class F>
JaxprRef planned(F f) {
  const ShapedArray v = floats({kRows, kWide});
  JaxprRef program;
  if constexpr (std::is_invocable_v<F, Array, Array, Array>) {
    program = make_jaxpr(f)(kSquare, kSquare, v).impl().jaxpr;
  } else {
    program = make_jaxpr(f)(kSquare, v).impl().jaxpr;
  }
  return schedule(*fuse(*simplify(*inline_calls(*program))));
}

JaxprRef remade(const JaxprRef& jaxpr) {
  JaxprRef made = rematerialize(*jaxpr, nullptr, kHostKind, rates(kHostKind));
  typecheck_jaxpr(*made);
  return made;
}

std::int64_t peak(const Jaxpr& jaxpr) {
  const ProgramIndex program(jaxpr);
  const Lifetimes lifetimes(program, kHostKind, [](const Var* v) { return v->type.nbytes(); });
  const std::vector<std::int64_t> needs = lifetimes.needs([](const Eqn&) { return 0; });
  return *std::max_element(needs.begin(), needs.end());
}

int count(const Jaxpr& jaxpr, const std::string& name) {
  return static_cast<int>(std::count_if(jaxpr.eqns.begin(), jaxpr.eqns.end(),
                                        [&](const Eqn& e) { return e.primitive->name == name; }));
}

// The number of an operation's occurrences, including those in fused programs.
int operations(const Jaxpr& jaxpr, const std::string& name) {
  int n = count(jaxpr, name);
  for (const Eqn& e : jaxpr.eqns) {
    if (e.primitive != &fused_p) continue;
    for (const FusedProgram::Op& op : params_as<FusedParams>(*e.params).program->ops())
      n += op.primitive && op.primitive->name == name;
  }
  return n;
}

TEST(Rematerialize, BeforeAProductThatReadsItLate) {
  const JaxprRef j = planned([](Array x, Array w, Array v) {
    const Array a = matmul(x, w);
    const Array n = a * 0.5f;
    return matmul(n, wide(matmul(n, w), v)) + a;
  });
  const JaxprRef made = remade(j);
  EXPECT_EQ(operations(*j, "mul"), 1) << to_string(*j);
  EXPECT_EQ(operations(*made, "mul"), 2) << to_string(*made);
  EXPECT_EQ(count(*made, "dot_general"), count(*j, "dot_general"));
  EXPECT_EQ(peak(*j) - peak(*made), kMiB);
  // The second one stands just before its reader.
  int last = 0;
  for (int i = 0; i < static_cast<int>(made->eqns.size()); ++i)
    if (made->eqns[static_cast<std::size_t>(i)].primitive->name == std::string("mul")) last = i;
  const Eqn& reader = made->eqns.at(static_cast<std::size_t>(last) + 1);
  EXPECT_STREQ(reader.primitive->name, "dot_general");
  EXPECT_EQ(reader.in[0].var(), made->eqns[static_cast<std::size_t>(last)].out[0].get());
  // A second run of the pass has nothing to do.
  EXPECT_EQ(remade(made).get(), made.get());
}

TEST(Rematerialize, InsideOfAFusedReader) {
  const JaxprRef j = planned([](Array x, Array w, Array v) {
    const Array a = matmul(x, w);
    const Array n = a * 0.5f;
    const Array m = wide(matmul(n, w), v);
    return tanh(m * n) - a;
  });
  const JaxprRef made = remade(j);
  EXPECT_EQ(operations(*made, "mul"), operations(*j, "mul") + 1) << to_string(*made);
  EXPECT_EQ(made->eqns.size(), j->eqns.size());
  EXPECT_EQ(peak(*j) - peak(*made), kMiB);
}

// One of several results of a fused equation is computed again, but not the other one.
TEST(Rematerialize, OneOfSeveralResults) {
  const JaxprRef j = planned([](Array x, Array w, Array v) {
    const Array a = matmul(x, w);
    const Array n = a * 0.5f + 1.f, other = sin(n);
    const Array m = wide(matmul(n, other), v);
    return matmul(n, m) + a;
  });
  ASSERT_EQ(count(*j, "fused"), 1) << to_string(*j);
  const JaxprRef made = remade(j);
  EXPECT_EQ(operations(*made, "mul"), 2) << to_string(*made);
  EXPECT_EQ(operations(*made, "sin"), 1);
  EXPECT_EQ(peak(*j) - peak(*made), kMiB);
}

TEST(Rematerialize, ReadersOfViews) {
  const JaxprRef j = planned([](Array x, Array w, Array v) {
    const Array a = matmul(x, w);
    const Array n = a * 0.5f;
    const Array flat = reshape(n, {kRows / 2, 2, kRows});
    const Array m = wide(reshape(einsum("abc,cd->abd", flat, w), {kRows, kRows}), v);
    return reshape(einsum("abc,cd->abd", flat, m), {kRows, kRows}) + a;
  });
  const JaxprRef made = remade(j);
  EXPECT_EQ(operations(*made, "mul"), 2) << to_string(*made);
  EXPECT_EQ(peak(*j) - peak(*made), kMiB);
}

// Values that are not read before the peak are not computed before it. That includes products and
// their operands.
TEST(Rematerialize, ProductsThatAreReadOnlyLateComeLate) {
  const JaxprRef j = planned([](Array x, Array w, Array v) {
    const Array q = matmul(x, w), k = matmul(w, x);
    const Array both = reshape(matmul(q, k), {kRows / 2, 2 * kRows});
    const Array m = wide(x, v);
    return matmul(reshape(both, {kRows, kRows}), m) + einsum("ab,ac->bc", q, k) + x + w;
  });
  const auto first_wide = [](const Jaxpr& p) {
    for (int i = 0;; ++i)
      if (p.eqns[static_cast<std::size_t>(i)].out[0]->type.dims() == Shape({kRows, kWide}))
        return i;
  };
  EXPECT_GE(first_wide(*j), 3) << to_string(*j);
  const JaxprRef made = remade(j);
  EXPECT_EQ(first_wide(*made), 0) << to_string(*made);
  EXPECT_EQ(made->eqns.size(), j->eqns.size());
  EXPECT_EQ(peak(*j) - peak(*made), 3 * kMiB);
}

TEST(Rematerialize, WhatIsReadOnlyLateComesLate) {
  const JaxprRef j = planned([](Array x, Array v) {
    const Array n = x * 0.5f;
    return matmul(n, wide(x, v)) + x;
  });
  ASSERT_STREQ(j->eqns.front().primitive->name, "mul") << to_string(*j);
  const JaxprRef made = remade(j);
  EXPECT_EQ(operations(*made, "mul"), 1) << to_string(*made);
  EXPECT_LT(peak(*made), peak(*j));
}

TEST(Rematerialize, NothingWhereTheOperandsDieEarlier) {
  const auto with = [](auto last) {
    return planned([last](Array x, Array w, Array v) {
      const Array a = last(matmul(x, w));
      const Array n = astype(a, f32) * 0.5f;
      return matmul(n, wide(matmul(n, w), v));
    });
  };
  const JaxprRef j = with([](const Array& a) { return tanh(sort(a)); });
  EXPECT_EQ(remade(j).get(), j.get()) << to_string(*remade(j));
  // Unless they take less memory than the value does.
  const JaxprRef half = with([](const Array& a) { return sort(astype(a, bf16)); });
  EXPECT_EQ(peak(*half) - peak(*remade(half)), kMiB / 2) << to_string(*remade(half));
}

TEST(Rematerialize, NothingThatIsNotWorthIt) {
  // The value is a small part of the peak.
  const JaxprRef little = planned([](Array x, Array w, Array v) {
    const Array a = matmul(x, w);
    const Array n = reshape(a[{range(0, 64)}] * 0.5f, {64, kRows});
    return matmul(n, wide(matmul(transpose(n), n), v)) + a[{range(0, 64)}];
  });
  EXPECT_EQ(remade(little).get(), little.get()) << to_string(*remade(little));
  // The program is small.
  const ClosedJaxpr traced = make_jaxpr([](Array x) {
    const Array n = x * 0.5f, m = matmul(n, x);
    return matmul(n, matmul(matmul(m, concatenate({m, m, m}, 1)), concatenate({m, m, m}, 0))) + x;
  })(floats({128, 128}));
  const JaxprRef small = schedule(*fuse(*simplify(*traced.impl().jaxpr)));
  EXPECT_EQ(remade(small).get(), small.get());
  // The value takes a large part of the program's time.
  const JaxprRef slow = planned([](Array x, Array v) {
    const Array n = x * 0.5f;
    const Array s = flip(n, 0);
    const Array total = sum(flip(concatenate({s, s, s, s, s, s}, 0), 0), 0);
    return flip(n, 1) + total + x + v[{range(), range(0, kRows)}];
  });
  EXPECT_EQ(remade(slow).get(), slow.get()) << to_string(*remade(slow));
}

TEST(Rematerialize, NoRandomBitsCollectivesEffectsOrProducts) {
  const JaxprRef j = planned([](Array x, Array w, Array v) {
    const Array a = matmul(x, w);
    const Array bits = random::bits(random::key(1), {kRows, kRows});
    const Array n = astype(bits, f32);
    debug::print("{}", a[{0, 0}]);
    return matmul(n, wide(matmul(n, w), v)) + a;
  });
  const JaxprRef made = remade(j);
  EXPECT_EQ(operations(*made, "random_bits"), operations(*j, "random_bits")) << to_string(*made);
  EXPECT_EQ(count(*made, "debug_print"), 1);
  EXPECT_EQ(count(*made, "dot_general"), count(*j, "dot_general"));

  const auto mapped = shard_map(
      [](Array x, Array w, Array v) {
        const Array a = psum(x, "i"), n = a * 0.5f;
        const Array m = wide(matmul(n, w), v);
        return matmul(n, m) + a;
      },
      AbstractMesh({2}, "i"), {P("i"), P(), P()}, P());
  const ClosedJaxpr outer =
      make_jaxpr(mapped)(floats({2 * kRows, kRows}), kSquare, floats({kRows, kWide}));
  const JaxprRef body =
      schedule(*fuse(*simplify(*inner_jaxprs(*outer.impl().jaxpr->eqns.at(0).params).at(0))));
  const JaxprRef again = remade(body);
  EXPECT_EQ(peak(*body) - peak(*again), kMiB) << to_string(*again);
  EXPECT_EQ(count(*again, "psum"), 1);
}

// A checkpoint's function is computed again from its arguments, which are hidden by a barrier.
TEST(Rematerialize, BarriersStay) {
  const JaxprRef j = planned([](Array x, Array w, Array v) {
    return grad([&](Array x) {
      const auto layer = checkpoint([](Array y, Array w) { return tanh(matmul(y, w)); });
      return sum(wide(layer(layer(x, w), w), v));
    })(x);
  });
  ASSERT_GT(count(*j, "optimization_barrier"), 0);
  const JaxprRef made = remade(j);
  EXPECT_EQ(count(*made, "optimization_barrier"), count(*j, "optimization_barrier"));
  EXPECT_EQ(count(*made, "dot_general"), count(*j, "dot_general"));
  EXPECT_LE(peak(*made), peak(*j));
}

}  // namespace
}  // namespace shmap
