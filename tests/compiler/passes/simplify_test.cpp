// Simplification of jaxprs: the whole texts of simplified programs, and that no bit of a value
// changes.
#include "core/compiler/passes/simplify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/compiler/passes/dead_code.h"
#include "core/ir/node.h"
#include "core/ops/shape_params.h"
#include "core/transforms/control_flow/flow_primitives.h"
#include "shard_map/primitive.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

ClosedJaxpr simplified(const ClosedJaxpr& j) {
  const JaxprRef made = simplify(*j.impl().jaxpr);
  EXPECT_EQ(to_string(typecheck_jaxpr(*made)), to_string(typecheck_jaxpr(*j.impl().jaxpr)));
  EXPECT_EQ(simplify(*made).get(), made.get()) << "a second time changed\n" << to_string(*made);
  return close_jaxpr(made, j.consts());
}

template <class F, class... A>
std::string simplified_text(F f, const A&... args) {
  return to_string(simplified(make_jaxpr(f)(args...)));
}

std::vector<std::uint32_t> bits(const Array& x) {
  std::vector<std::uint32_t> out;
  for (float v : x.to_vector<float>()) {
    out.emplace_back();
    std::memcpy(&out.back(), &v, 4);
  }
  return out;
}

const ShapedArray kF32({2, 3}, f32);

TEST(Simplify, GivesBackWhatCannotBeSimpler) {
  const ClosedJaxpr j = make_jaxpr([](Array x) { return sin(x) * 2.f; })(kF32);
  EXPECT_EQ(simplify(*j.impl().jaxpr).get(), j.impl().jaxpr.get());
}

TEST(Simplify, CommonSubexpressionsBecomeOne) {
  EXPECT_EQ(simplified_text(
                [](Array x) {
                  const Array a = sum(sin(x), 0), b = sum(sin(x), 0), c = sum(sin(x), 1);
                  return std::tuple{a * b, c};
                },
                kF32),
            "{ lambda a:f32[2,3] .\n"
            "  let b:f32[2,3] = sin a\n"
            "      c:f32[3] = reduce_sum[axes=(0,)] b\n"
            "      d:f32[2] = reduce_sum[axes=(1,)] b\n"
            "      e:f32[3] = mul c c\n"
            "  in ( e, d ) }");
}

TEST(Simplify, LiteralsAreComparedByTypeAndBits) {
  EXPECT_EQ(simplified_text(
                [](Array x) {
                  const Array zero = x * 0.f, negative = x * -0.f, again = x * 0.f;
                  return std::vector{zero, negative, again};
                },
                kF32),
            "{ lambda a:f32[2,3] .\n"
            "  let b:f32[2,3] = mul a 0.0\n"
            "      c:f32[2,3] = mul a -0.0\n"
            "  in ( b, c, b ) }");
}

TEST(Simplify, OneCastOfAValueIsEnough) {
  const AbstractMesh mesh({4}, "i");
  const auto f = shard_map(
      [](Array x, Array y) {
        const Array a = pbroadcast(x, "i"), b = pbroadcast(x, "i");
        return a * y + b;
      },
      mesh, {P(), P("i")}, P("i"), {.auto_pbroadcast = false});
  EXPECT_EQ(simplified_text(f, ShapedArray({2}, f32), ShapedArray({8}, f32)),
            "{ lambda a:f32[2], b:f32[8] .\n"
            "  let c:f32[8] = shard_map[auto_pbroadcast=False\n"
            "                           check_vma=True\n"
            "                           in_specs=(P(), P('i'))\n"
            "                           jaxpr={ lambda a:f32[2], b:f32[2]{i} .\n"
            "                                   let c:f32[2]{i} = pbroadcast[axes=('i',)] a\n"
            "                                       d:f32[2]{i} = mul c b\n"
            "                                       e:f32[2]{i} = add d c\n"
            "                                   in ( e ) }\n"
            "                           mesh=Mesh('i': 4)\n"
            "                           out_specs=(P('i'),)] a b\n"
            "  in ( c ) }");
}

TEST(Simplify, ConstantsAreComputedAtOnce) {
  EXPECT_EQ(simplified_text(
                [](Array x) {
                  const Array two = Array(1.f) + 1.f;
                  return x * (two * two - sqrt(Array(9.f)));
                },
                kF32),
            "{ lambda a:f32[2,3] .\n"
            "  let \n"
            "  in ( a ) }");
  EXPECT_EQ(simplified_text([] { return exp(Array(0.)) + 0.5; }),
            "{ lambda  .\n"
            "  let \n"
            "  in ( 1.5:f64[] ) }");
  // Arrays are data, and stay.
  EXPECT_EQ(simplified_text([] { return zeros({2}) + 1.f; }),
            "{ lambda  .\n"
            "  let a:f32[2] = broadcast_in_dim[broadcast_dimensions=() shape=(2,)] 0.0\n"
            "      b:f32[2] = add a 1.0\n"
            "  in ( b ) }");
}

TEST(Simplify, ConstantsKeepDtypeAndWeakness) {
  const ClosedJaxpr j = make_jaxpr([] {
    return std::tuple{Array(2) * Array(3), astype(Array(1.5f) * 2.f, bf16), Array(1) < Array(2)};
  })();
  const ClosedJaxpr k = simplified(j);
  EXPECT_TRUE(k.impl().jaxpr->eqns.empty()) << k;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(k.impl().jaxpr->outs[i].type().weak(), j.impl().jaxpr->outs[i].type().weak()) << i;
  }
  EXPECT_EQ(to_string(k), "{ lambda  .\n  let \n  in ( 6, 3:bf16[], True ) }");
}

TEST(Simplify, NeutralElementsGoWhereTheyChangeNoBit) {
  const auto count = [](auto f, const ShapedArray& type) {
    return simplified(make_jaxpr(f)(type)).impl().jaxpr->eqns.size();
  };
  for (DType t : {f32, f64, bf16, f16, i32}) {
    const ShapedArray type({4}, t);
    EXPECT_EQ(count([](Array x) { return x * 1; }, type), 0u) << short_name(t);
    EXPECT_EQ(count([](Array x) { return 1 * x; }, type), 0u) << short_name(t);
    EXPECT_EQ(count([](Array x) { return x - 0; }, type), 0u) << short_name(t);
    EXPECT_EQ(count([](Array x) { return x * 2; }, type), 1u) << short_name(t);
    EXPECT_EQ(count([](Array x) { return 0 - x; }, type), 1u) << short_name(t);
  }
  EXPECT_EQ(count([](Array x) { return x + 0; }, ShapedArray({4}, i32)), 0u);
  EXPECT_EQ(count([](Array x) { return 0 + x; }, ShapedArray({4}, i32)), 0u);
  EXPECT_EQ(count([](Array x) { return x + 0; }, kF32), 1u);     // -0.0 + 0.0 is 0.0
  EXPECT_EQ(count([](Array x) { return x - -0.f; }, kF32), 1u);  // likewise
  EXPECT_EQ(count([](Array x) { return 1 / x; }, kF32), 1u);
  EXPECT_EQ(count([](Array x) { return x / 1; }, kF32), 0u);
}

TEST(Simplify, ARepeatedHostScalarIsAnOperandItself) {
  // If two scalars give a shape only together, one of them stays an array.
  EXPECT_EQ(simplified_text(
                [](Array x) {
                  const Array two = full({2, 3}, 2.f), one = full({2, 3}, 1.f);
                  return std::tuple{x / two, x * one, where(x < two, one, x), two + one};
                },
                kF32),
            "{ lambda a:f32[2,3] .\n"
            "  let b:f32[2,3] = broadcast_in_dim[broadcast_dimensions=() shape=(2, 3)] 2.0\n"
            "      c:f32[2,3] = broadcast_in_dim[broadcast_dimensions=() shape=(2, 3)] 1.0\n"
            "      d:f32[2,3] = div a 2.0\n"
            "      e:bool[2,3] = lt a 2.0\n"
            "      f:f32[2,3] = select_n e a 1.0\n"
            "      g:f32[2,3] = add b c\n"
            "  in ( d, a, f, g ) }");
}

// The value between the bounds has the result's shape, and thus stays an array.
TEST(Simplify, ARepeatedHostScalarBetweenBoundsStays) {
  const auto text = [](const std::string& operands) {
    return to_string(simplified(extend::parse_jaxpr(
        "{ lambda a:f32[4], b:f32[4] .\n"
        "  let c:f32[4] = broadcast_in_dim[broadcast_dimensions=() shape=(4,)] 2.0\n"
        "      d:f32[4] = clamp " +
        operands +
        "\n"
        "  in ( d ) }")));
  };
  EXPECT_THAT(text("a c b"), testing::HasSubstr("= clamp a c b\n"));
  EXPECT_THAT(text("c a b"), testing::HasSubstr("= clamp 2.0 a b\n"));
}

TEST(Simplify, NoBitOfAValueChanges) {
  const float inf = std::numeric_limits<float>::infinity();
  const Array x = array<float>({-0.f, 0.f, 1e-42f, -3.5f, inf, -inf}, {2, 3});
  const auto f = [](Array x) {
    const Array y = transpose(transpose(x * 1 - 0) + 0);
    return reshape(reshape(y, {6}), {3, 2}) / 1 + sum(y) * 0 * (Array(2.f) - 2.f);
  };
  const ClosedJaxpr j = make_jaxpr(f)(x);
  EXPECT_EQ(bits(eval_jaxpr(simplified(j), {x})[0]), bits(eval_jaxpr(j, {x})[0]));
  const auto neutral = [](Array x) { return (x * 1.f - 0.f) / 1.f + 0.f; };
  const ClosedJaxpr k = make_jaxpr(neutral)(x);
  EXPECT_EQ(bits(eval_jaxpr(simplified(k), {x})[0]), bits(neutral(x)));
}

TEST(Simplify, ShapesAreChangedOnce) {
  EXPECT_EQ(simplified_text(
                [](Array x) {
                  const Array same = transpose(transpose(x)), r = reshape(reshape(x, {6}), {3, 2});
                  return std::tuple{same, r, reshape(r, {2, 3})};
                },
                kF32),
            "{ lambda a:f32[2,3] .\n"
            "  let b:f32[3,2] = reshape[new_sizes=(3, 2)] a\n"
            "  in ( a, b, a ) }");
  EXPECT_EQ(simplified_text(
                [](Array x) {
                  return transpose(transpose(x, {1, 2, 0}), {2, 1, 0});
                },
                ShapedArray({2, 3, 4}, f32)),
            "{ lambda a:f32[2,3,4] .\n"
            "  let b:f32[2,4,3] = transpose[permutation=(0, 2, 1)] a\n"
            "  in ( b ) }");
  EXPECT_EQ(simplified_text(
                [](Array x) {
                  return broadcast_in_dim(broadcast_in_dim(x, {2, 3}, {1}), {2, 5, 3}, {0, 2});
                },
                ShapedArray({3}, f32)),
            "{ lambda a:f32[3] .\n"
            "  let b:f32[2,5,3] = broadcast_in_dim[broadcast_dimensions=(2,) shape=(2, 5, 3)] a\n"
            "  in ( b ) }");
  const Array x = array<float>({1, 2, 3, 4, 5, 6}, {1, 2, 3});
  const auto f = [](Array x) { return transpose(transpose(x, {1, 2, 0}), {2, 1, 0}); };
  EXPECT_EQ(eval_jaxpr(simplified(make_jaxpr(f)(x)), {x})[0].to_vector<float>(),
            f(x).to_vector<float>());
}

TEST(Simplify, ConversionsToTheSameTypeGo) {
  const ClosedJaxpr j = make_jaxpr([](Array x) {
    // A transform's rule may write this; astype itself binds nothing here.
    Array y = x;
    for (int i = 0; i < 2; ++i) y = broadcast_in_dim(y, {2, 3}, {0, 1});
    return astype(astype(y, f32), f64);
  })(kF32);
  EXPECT_EQ(to_string(simplified(j)),
            "{ lambda a:f32[2,3] .\n"
            "  let b:f64[2,3] = convert_element_type[new_dtype=float64 weak_type=False] a\n"
            "  in ( b ) }");
}

TEST(Simplify, DeadCodeGoes) {
  EXPECT_EQ(simplified_text(
                [](Array x) {
                  const Array dead = exp(sin(x));
                  (void)(dead + dead);
                  return cos(x);
                },
                kF32),
            "{ lambda a:f32[2,3] .\n"
            "  let b:f32[2,3] = cos a\n"
            "  in ( b ) }");
}

// A body with three results, each of which needs its own operand.
ClosedJaxpr three_results() {
  const AbstractMesh mesh({4, 2}, {"i", "j"});
  return make_jaxpr([mesh](Array x, Array y, Array z) {
    const auto g = shard_map(
        [x](Array y, Array z) {
          return std::tuple{sin(x), cos(z), tan(y)};
        },
        mesh, {P("i", "j"), P(none, "i")}, {P(), P(none, "i"), P("i", "j")});
    return g(y, z);
  })(ShapedArray({4, 4}, f32), ShapedArray({8, 8}, f32), ShapedArray({16, 16}, f32));
}

TEST(DeadCode, OfABodyGoesWithItsOperandsAndResults) {
  const ClosedJaxpr j = three_results();
  struct Case {
    std::vector<bool> wanted, kept;
    std::size_t eqns;
  };
  for (const Case& c : {Case{{true, true, true}, {true, true, true}, 3},
                        Case{{true, true, false}, {true, false, true}, 2},
                        Case{{true, false, true}, {true, true, false}, 2},
                        Case{{true, false, false}, {true, false, false}, 1},
                        Case{{false, true, false}, {false, false, true}, 1}}) {
    const PrunedJaxpr pruned = prune_jaxpr(*j.impl().jaxpr, c.wanted);
    typecheck_jaxpr(*pruned.jaxpr);
    EXPECT_EQ(pruned.kept, c.kept);
    ASSERT_EQ(pruned.jaxpr->eqns.size(), 1u);
    const auto& params = params_as<ShardMapParams>(*pruned.jaxpr->eqns[0].params);
    EXPECT_EQ(params.jaxpr->eqns.size(), c.eqns) << to_string(*pruned.jaxpr);
    EXPECT_EQ(params.in.size(), pruned.jaxpr->binders.size());
    EXPECT_EQ(params.out.size(), pruned.jaxpr->outs.size());
  }
  const PrunedJaxpr nothing = prune_jaxpr(*j.impl().jaxpr, {false, false, false});
  EXPECT_TRUE(nothing.jaxpr->eqns.empty());
}

TEST(DeadCode, OfABodyPrintsAsOnlyWhatIsLeft) {
  const PrunedJaxpr pruned = prune_jaxpr(*three_results().impl().jaxpr, {false, true, false});
  EXPECT_EQ(to_string(*pruned.jaxpr),
            "{ lambda a:f32[16,16] .\n"
            "  let b:f32[16,16] = shard_map[check_vma=True\n"
            "                               in_specs=(P(none, 'i'),)\n"
            "                               jaxpr={ lambda a:f32[16,4]{i} .\n"
            "                                       let b:f32[16,4]{i} = cos a\n"
            "                                       in ( b ) }\n"
            "                               mesh=Mesh('i': 4, 'j': 2)\n"
            "                               out_specs=(P(none, 'i'),)] a\n"
            "  in ( b ) }");
}

TEST(DeadCode, OfANestedJitGoesToo) {
  const auto inner = jit([](Array x, Array y) { return std::pair{sin(x) + sin(x), exp(y)}; });
  EXPECT_EQ(simplified_text([&](Array x, Array y) { return inner(x, y).first; }, kF32,
                            ShapedArray({4}, f32)),
            "{ lambda a:f32[2,3], b:f32[4] .\n"
            "  let c:f32[2,3] = jit[jaxpr={ lambda a:f32[2,3] .\n"
            "                               let b:f32[2,3] = sin a\n"
            "                                   c:f32[2,3] = add b b\n"
            "                               in ( c ) }] a\n"
            "  in ( c ) }");
}

TEST(DeadCode, ArgumentsThatABodyNeverReadsAreNoOperands) {
  const AbstractMesh mesh({4}, "i");
  const auto f = shard_map([](Array x, Array) { return x + x; }, mesh, P("i"), P("i"));
  const ClosedJaxpr k = simplified(make_jaxpr(f)(ShapedArray({8}, f32), ShapedArray({4}, i32)));
  EXPECT_EQ(k.impl().jaxpr->eqns[0].in.size(), 1u) << k;
}

std::size_t count_inside(const ClosedJaxpr& j) {
  std::size_t n = 0;
  for (const Eqn& e : j.impl().jaxpr->eqns)
    for (const Jaxpr* inner : inner_jaxprs(*e.params)) n += inner->eqns.size();
  return n;
}

TEST(Simplify, ProgramsOfLoopsAndBranchesToo) {
  const Array x = array<float>({1, 2, 3}, {3});
  const auto check = [&](auto f, std::size_t fewer) {
    const ClosedJaxpr j = make_jaxpr(f)(x), k = simplified(j);
    EXPECT_EQ(count_inside(k) + fewer, count_inside(j)) << k;
    EXPECT_EQ(bits(eval_jaxpr(k, {x})[0]), bits(f(x)));
  };
  check(
      [](Array x) {
        return fori_loop(
            0, 3, [](Array, Array c) { return (sin(c) + sin(c)) * 1.f; }, x);
      },
      3);  // the index goes too
  check(
      [](Array x) {
        return cond(
            sum(x) > 0.f, [](Array c) { return cos(c) * cos(c); }, [](Array c) { return c * 1.f; },
            x);
      },
      2);
}

// A carry stays where its result is read, or where one that stays is computed from it.
TEST(DeadCode, OfAScanGoesWithItsCarriesXsAndYs) {
  const auto f = [](Array a, Array b, Array c, Array xs, Array zs) {
    const auto [carry, ys] = scan(
        [&](std::tuple<Array, Array, Array> v, std::tuple<Array, Array> x) {
          const auto [u, w, t] = v;
          return std::pair{std::tuple{u + w, w * 2.f, t + std::get<1>(x)},
                           std::pair{u + std::get<0>(x), t * c}};
        },
        std::tuple{a, b, a}, std::tuple{xs, zs});
    return std::tuple{std::get<0>(carry), std::get<1>(carry), std::get<2>(carry), ys.first,
                      ys.second};
  };
  const ShapedArray scalar({}, f32), row({4}, f32);
  const ClosedJaxpr j = make_jaxpr(f)(scalar, scalar, scalar, row, row);
  struct Case {
    std::vector<bool> wanted, kept;  // arguments: a, b, c, xs, zs
    int num_consts, num_carry;
    std::size_t eqns;
  };
  for (const Case& c :
       {Case{{true, true, true, true, true}, {true, true, true, true, true}, 1, 3, 5},
        Case{{false, true, false, false, false}, {false, true, false, false, false}, 0, 1, 1},
        Case{{true, false, false, false, false}, {true, true, false, false, false}, 0, 2, 2},
        Case{{false, false, true, false, false}, {true, false, false, false, true}, 0, 1, 1},
        Case{{false, false, false, true, false}, {true, true, false, true, false}, 0, 2, 3},
        Case{{false, false, false, false, true}, {true, false, true, false, true}, 1, 1, 2}}) {
    const PrunedJaxpr pruned = prune_jaxpr(*j.impl().jaxpr, c.wanted);
    typecheck_jaxpr(*pruned.jaxpr);
    EXPECT_EQ(pruned.kept, c.kept) << to_string(*pruned.jaxpr);
    ASSERT_EQ(pruned.jaxpr->eqns.size(), 1u);
    const auto& p = params_as<ScanLoopParams>(*pruned.jaxpr->eqns[0].params);
    EXPECT_EQ(p.num_consts, c.num_consts);
    EXPECT_EQ(p.num_carry, c.num_carry);
    EXPECT_EQ(p.jaxpr->eqns.size(), c.eqns) << to_string(*pruned.jaxpr);
    const std::vector<Array> all = {2.f, 3.f, 5.f, arange(4), arange(4) + 1.f};
    std::vector<Array> args, wanted = eval_jaxpr(j, all);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (c.kept[i]) args.push_back(all[i]);
    const std::vector<Array> got = eval_jaxpr(close_jaxpr(pruned.jaxpr, {}), args);
    for (std::size_t o = 0, g = 0; o < wanted.size(); ++o) {
      if (c.wanted[o]) {
        EXPECT_EQ(bits(got[g++]), bits(wanted[o]));
      }
    }
  }
  EXPECT_TRUE(
      prune_jaxpr(*j.impl().jaxpr, {false, false, false, false, false}).jaxpr->eqns.empty());
}

TEST(DeadCode, ACarryThatIsOnlyOverwrittenKeepsItsInit) {
  const auto f = [](Array a, Array b) {
    return scan(
               [](std::pair<Array, Array> v, auto) {
                 return std::pair{std::pair{v.second, v.second}, Array(0.f)};
               },
               std::pair{a, b}, none, {.length = 2})
        .first.first;
  };
  const ClosedJaxpr k = simplified(make_jaxpr(f)(ShapedArray({}, f32), ShapedArray({}, f32)));
  EXPECT_EQ(params_as<ScanLoopParams>(*k.impl().jaxpr->eqns[0].params).num_carry, 2);
  EXPECT_EQ(eval_jaxpr(k, {1.f, 2.f})[0].item<float>(), 2.f);
}

TEST(DeadCode, OfAWhileStaysWhatDecides) {
  const auto f = [](Array x, Array y) {
    const auto [i, v, w, u] =
        while_loop([](std::tuple<Array, Array, Array, Array> c) { return std::get<0>(c) < 10.f; },
                   [&](std::tuple<Array, Array, Array, Array> c) {
                     const auto [i, v, w, u] = c;
                     return std::tuple{i + w, v * y, w, u + v};
                   },
                   std::tuple{Array(0.f), x, Array(2.f), x});
    return std::tuple{v, u, i};
  };
  const ClosedJaxpr j = make_jaxpr(f)(ShapedArray({}, f32), ShapedArray({}, f32));
  const auto carries = [&](std::vector<bool> wanted) {
    const PrunedJaxpr pruned = prune_jaxpr(*j.impl().jaxpr, wanted);
    typecheck_jaxpr(*pruned.jaxpr);
    return pruned.jaxpr->eqns.at(0).out.size();
  };
  EXPECT_EQ(carries({true, true, true}), 4u);
  EXPECT_EQ(carries({true, false, false}), 3u);
  EXPECT_EQ(carries({false, true, false}), 4u);
  const PrunedJaxpr index = prune_jaxpr(*j.impl().jaxpr, {false, false, true});
  EXPECT_EQ(index.jaxpr->eqns.at(0).out.size(), 2u) << to_string(*index.jaxpr);
  EXPECT_EQ(index.kept, (std::vector<bool>{false, false}));
  EXPECT_EQ(eval_jaxpr(close_jaxpr(index.jaxpr, {}), {})[0].item<float>(), 10.f);
  EXPECT_TRUE(prune_jaxpr(*j.impl().jaxpr, {false, false, false}).jaxpr->eqns.empty());
}

TEST(DeadCode, OfBranchesGoesInAllOfThem) {
  const auto f = [](Array p, Array x, Array y, Array z) {
    return cond(
        p,
        [](Array a, Array b, Array c) {
          return std::tuple{a + b, c * 2.f, sin(a)};
        },
        [](Array a, Array b, Array c) {
          return std::tuple{b, c + a, cos(b)};
        },
        x, y, z);
  };
  const ShapedArray scalar({}, f32);
  const ClosedJaxpr j = make_jaxpr(f)(ShapedArray({}, bool_), scalar, scalar, scalar);
  struct Case {
    std::vector<bool> wanted, kept;
  };
  for (const Case& c : {Case{{true, false, false}, {true, true, true, false}},
                        Case{{false, true, false}, {true, true, false, true}},
                        Case{{false, false, true}, {true, true, true, false}}}) {
    const PrunedJaxpr pruned = prune_jaxpr(*j.impl().jaxpr, c.wanted);
    typecheck_jaxpr(*pruned.jaxpr);
    EXPECT_EQ(pruned.kept, c.kept) << to_string(*pruned.jaxpr);
    for (const bool p : {false, true}) {
      const std::vector<Array> all = {p, 2.f, 3.f, 5.f};
      const std::vector<Array> want = eval_jaxpr(j, all);
      std::vector<Array> args;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (c.kept[i]) args.push_back(all[i]);
      const Array got = eval_jaxpr(close_jaxpr(pruned.jaxpr, {}), args).at(0);
      for (std::size_t o = 0; o < want.size(); ++o) {
        if (c.wanted[o]) {
          EXPECT_EQ(bits(got), bits(want[o]));
        }
      }
    }
  }
}

TEST(DeadCode, ALoopThatPrintsStaysWithoutItsResults) {
  const auto f = [](Array x) {
    fori_loop(
        0, 2,
        [](Array i, std::pair<Array, Array> c) {
          debug::print("{}", i);
          return std::pair{c.first + 1.f, c.second * 2.f};
        },
        std::pair{x, x});
    return x;
  };
  const ClosedJaxpr k = simplified(make_jaxpr(f)(ShapedArray({}, f32)));
  ASSERT_EQ(k.impl().jaxpr->eqns.size(), 1u);
  EXPECT_EQ(params_as<ScanLoopParams>(*k.impl().jaxpr->eqns[0].params).num_carry, 1) << k;
}

TEST(Simplify, ASimplifiedBodyGivesTheSameValues) {
  const Mesh mesh = make_mesh({8}, "i");
  const auto f = shard_map(
      [](Array x) {
        const Array a = psum(sin(x), "i"), b = psum(sin(x), "i");
        return (a + b) * (Array(1.f) * 1.f) + cos(x);
      },
      mesh, P("i"), P("i"));
  const Array x = arange(16.f);
  const ClosedJaxpr k = simplified(make_jaxpr(f)(x));
  int psums = 0;
  for (const CollectiveCost& c : cost_analysis(k).collectives) psums += c.primitive == "psum";
  EXPECT_EQ(psums, 1) << k;
  EXPECT_EQ(bits(eval_jaxpr(k, {x})[0]), bits(f(x)));
}

}  // namespace
}  // namespace shmap
