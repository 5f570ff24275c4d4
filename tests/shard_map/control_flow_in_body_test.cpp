// shmap-test: devices
// Loops and branches in shard_map bodies, where devices may take different branches.
#include "shmap/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/control_flow.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using Floats = std::vector<float>;
using test::expect_error;
using test::mesh_i;
using test::scalar;
using test::split_i;
using test::staged;
using test::values;
using testing::ElementsAre;

// Runs a body of blocks eagerly, and staged and interpreted; both give the same.
template <class F>
Array both(F body, const Array& x, Specs in, Specs out, ShardMapOptions options = {}) {
  const auto mapped = shard_map(body, mesh_i(), in, out, options);
  const Array eager = mapped(x);
  const Array again = staged(mapped, x)[0];
  EXPECT_EQ(eager.to_vector<float>(), again.to_vector<float>());
  EXPECT_EQ(eager.sharding(), again.sharding());
  return eager;
}

TEST(InABody, ALoopOfCollectives) {
  const auto body = [](Array x) {
    const int n = axis_size("i");
    std::vector<std::pair<int, int>> ring;
    for (int k = 0; k < n; ++k) ring.emplace_back(k, (k + 1) % n);
    return fori_loop(
        0, 3, [&](Array, Array c) { return ppermute(c, "i", ring); }, x);
  };
  const Array y = both(body, arange(8) * 1.f, P("i"), P("i"));
  EXPECT_THAT(values(y), ElementsAre(5, 6, 7, 0, 1, 2, 3, 4));
}

TEST(InABody, ACarryGrowsInVariance) {
  const auto body = [](Array x) {
    return scan(
        [](Array c, auto) {
          return std::pair{c + psum(sum(c), "i") * 0.f + 1.f, sum(c)};
        },
        sum(x) * 0.f, none, {.length = 2});
  };
  const ClosedJaxpr j = make_jaxpr([&](Array x, Array w) {
    return fori_loop(
        0, 2, [&](Array, Array c) { return c + w; }, x);
  })(ShapedArray({2}, f32), ShapedArray({2}, f32, "i"));
  EXPECT_EQ(to_string(j),
            "{ lambda a:f32[2], b:f32[2]{i} .\n"
            "  let c:f32[2]{i} = pbroadcast[axes=('i',)] a\n"
            "      d:i32[] e:f32[2]{i} = scan[jaxpr={ lambda a:f32[2]{i}, b:i32[], c:f32[2]{i} .\n"
            "                                         let d:f32[2]{i} = add c a\n"
            "                                             e:i32[] = add b 1\n"
            "                                         in ( e, d ) }\n"
            "                                 length=2\n"
            "                                 num_carry=2\n"
            "                                 num_consts=1\n"
            "                                 reverse=False] b 0 c\n"
            "  in ( e ) }");
  (void)body;
}

TEST(InABody, ThreeCarriesPassVarianceOn) {
  // c takes b's variance, b takes a's: it takes trips to settle.
  const auto body = [](Array x) {
    auto [a, b, c] = fori_loop(
        0, 4,
        [](Array, std::tuple<Array, Array, Array> s) {
          auto [u, v, w] = s;
          return std::tuple{u, u + v * 0.f, v + w * 0.f};
        },
        std::tuple{sum(x), Array(0.f), Array(0.f)});
    return reshape(c, {1});
  };
  EXPECT_THAT(values(both(body, arange(8) * 1.f, P("i"), P("i"))),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  const auto promise = shard_map(body, mesh_i(), P("i"), P());
  expect_error<ValueError>([&] { promise(arange(8) * 1.f); }, {"is statically inferred to vary"});
  expect_error<ValueError>([&] { make_jaxpr(promise)(arange(8) * 1.f); },
                           {"is statically inferred to vary"});
}

TEST(InABody, EachDeviceTakesItsBranch) {
  const Array w = scalar(100.f);
  const auto body = [&](Array x) {
    return cond(
        sum(x) > 3.f, [&](Array a) { return a + w; }, [](Array a) { return -a; }, x);
  };
  EXPECT_THAT(values(both(body, arange(8) * 1.f, P("i"), P("i"))),
              ElementsAre(0, -1, -2, -3, 104, 105, 106, 107));
}

TEST(InABody, WhatAVaryingPredicateDecidesVaries) {
  const auto body = [](Array x, Array w) {
    return cond(
        sum(x) > 3.f, [&] { return w * 2.f; }, [] { return Array(0.f); });
  };
  EXPECT_EQ(to_string(make_jaxpr(body)(ShapedArray({1}, f32, "i"), ShapedArray({}, f32))),
            "{ lambda a:f32[1]{i}, b:f32[] .\n"
            "  let c:f32[]{i} = reduce_sum[axes=(0,)] a\n"
            "      d:bool[]{i} = gt c 3.0\n"
            "      e:f32[]{i} = pbroadcast[axes=('i',)] b\n"
            "      f:f32[]{i} = cond[branches[0]={ lambda a:f32[]{i} .\n"
            "                                      let b:f32[]{i} = pbroadcast[axes=('i',)] 0.0\n"
            "                                      in ( b ) }\n"
            "                        branches[1]={ lambda a:f32[]{i} .\n"
            "                                      let b:f32[]{i} = mul a 2.0\n"
            "                                      in ( b ) }] d e\n"
            "  in ( f ) }");
  const auto mapped = shard_map(body, mesh_i(), {P("i"), P()}, P());
  expect_error<ValueError>([&] { mapped(arange(8) * 1.f, 3.f); },
                           {"is statically inferred to vary over {'i'}"});
  const auto kept = shard_map([&](Array x, Array w) { return reshape(body(x, w), {1}); }, mesh_i(),
                              {P("i"), P()}, P("i"));
  EXPECT_THAT(values(kept(arange(8) * 1.f, 3.f)), ElementsAre(0, 0, 0, 0, 6, 6, 6, 6));
  EXPECT_THAT(values(staged(kept, arange(8) * 1.f, scalar(3.f))[0]),
              ElementsAre(0, 0, 0, 0, 6, 6, 6, 6));
}

TEST(InABody, BranchesAreJoinedByCasts) {
  const auto f = [](Array p, Array x, Array w) {
    return cond(
        p, [&] { return x; }, [&] { return w; });
  };
  EXPECT_EQ(to_string(make_jaxpr(f)(ShapedArray({}, bool_), ShapedArray({2}, f32, "i"),
                                    ShapedArray({2}, f32))),
            "{ lambda a:bool[], b:f32[2]{i}, c:f32[2] .\n"
            "  let d:f32[2]{i} = cond[branches[0]={ lambda a:f32[2], b:f32[2]{i} .\n"
            "                                       let c:f32[2]{i} = pbroadcast[axes=('i',)] a\n"
            "                                       in ( c ) }\n"
            "                         branches[1]={ lambda a:f32[2], b:f32[2]{i} .\n"
            "                                       let \n"
            "                                       in ( b ) }] a c b\n"
            "  in ( d ) }");
}

TEST(InABody, EachDeviceEndsItsOwnLoop) {
  const auto body = [](Array x) {
    const auto result = while_loop([](auto c) { return sum(c.first) < 10.f; },
                                   [](std::pair<Array, Array> c) {
                                     return std::pair{c.first * 2.f, c.second + 1.f};
                                   },
                                   std::pair{x, Array(0.f)});
    return result.first + reshape(result.second, {1}) * 100.f;
  };
  std::vector<float> want;
  for (int k = 1; k <= 8; ++k) {
    float x = static_cast<float>(k), trips = 0;
    for (; x < 10; x *= 2) ++trips;
    want.push_back(x + trips * 100);
  }
  EXPECT_EQ(values(both(body, arange(1, 9) * 1.f, P("i"), P("i"))), want);
}

TEST(InABody, EachDeviceHasItsTripCount) {
  const auto body = [](Array x) {
    return fori_loop(
        0, axis_index("i"), [](Array i, Array c) { return c + astype(i, f32); }, x);
  };
  EXPECT_THAT(values(both(body, zeros({8}), P("i"), P("i"))),
              ElementsAre(0, 0, 1, 3, 6, 10, 15, 21));
}

TEST(InABody, VaryingLoopsInVaryingBranches) {
  // Odd devices count to their index; even ones would not end.
  const auto body = [](Array x) {
    return cond(
        axis_index("i") % 2 == 1,
        [](Array a) {
          return while_loop([](Array c) { return sum(c) != astype(axis_index("i"), f32); },
                            [](Array c) { return c + 2.f; }, a + 1.f);
        },
        [](Array a) { return a - 1.f; }, x);
  };
  EXPECT_THAT(values(both(body, zeros({8}), P("i"), P("i"))),
              ElementsAre(-1, 1, -1, 3, -1, 5, -1, 7));
}

// A value that varies over 'i' only is stored once for the devices along 'j', even if only some of
// these take the branch.
TEST(InABody, DecisionsOverOtherAxesInVaryingBranches) {
  const Array over_j = array<float>({1, -1}, {2}), over_i = array<float>({1, -2, 3, -4}, {4});
  const auto run = [&](auto inner) {
    const auto f = shard_map(
        [inner](Array u, Array w) {
          return cond(
              sum(u) > 0.f, [&] { return w; }, [&] { return inner(w) + 1.f; });
        },
        make_mesh({4, 2}, {"i", "j"}), {P("j"), P("i")}, P(axes("i", "j")));
    const Floats eager = values(f(over_j, over_i));
    EXPECT_EQ(values(jit(f)(over_j, over_i)), eager);
    return eager;
  };
  EXPECT_EQ(run([](Array w) {
              return cond(
                  sum(w) > 0.f, [](Array c) { return 10.f * c; }, [](Array c) { return 100.f * c; },
                  w);
            }),
            (Floats{1, 11, -2, -199, 3, 31, -4, -399}));
  EXPECT_EQ(run([](Array w) {
              return while_loop([](Array c) { return sum(c) < 5.f; },
                                [](Array c) { return c + 3.f; }, w);
            }),
            (Floats{1, 8, -2, 8, 3, 7, -4, 6}));
}

TEST(InABody, ProgramsInVaryingBranchesAreWidened) {
  // Loops and branches inside work on values that are cast outside of the branch.
  const Array w = array({1.f, 2.f}, {2});
  const auto body = [&](Array x) {
    return cond(
        sum(x) > 3.f,
        [&](Array a) {
          auto [c, ys] = scan([&](Array s, Array v) { return std::pair{s + w * v, s}; }, w, w);
          const Array t = while_loop([&](Array s) { return sum(s) < sum(w) * 10.f; },
                                     [&](Array s) { return s + w; }, c);
          const Array u = cond(
              sum(w) > 0.f, [&](Array v) { return pbroadcast(v, "i"); },
              [&](Array) { return jit([&](Array v) { return v + a; })(w); }, t);
          return a + sum(u) +
                 sum(ys) * fori_loop(
                               0, 2, [&](Array, Array s) { return s + 1.f; }, 0);
        },
        [](Array a) { return a; }, x);
  };
  // c = w + w + 2 w, t = 10 w, ys = {w, 2 w}.
  const float more = 30 + 9 * 2;
  EXPECT_THAT(values(both(body, arange(8) * 1.f, P("i"), P("i"))),
              ElementsAre(0, 1, 2, 3, 4 + more, 5 + more, 6 + more, 7 + more));
}

TEST(InABody, OverOtherAxesDevicesMeet) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto mapped = shard_map(
      [](Array x) {
        return while_loop([](Array c) { return psum(sum(c), "j") < 20.f; },
                          [](Array c) {
                            return cond(
                                axis_index("i") > 1, [](Array a) { return a + psum(a, "j"); },
                                [](Array a) { return a + 1.f; }, c);
                          },
                          x);
      },
      mesh, P("i", "j"), P("i", "j"));
  const Array x = reshape(arange(8), {4, 2});
  std::vector<float> want;
  for (int i = 0; i < 4; ++i) {
    float a = static_cast<float>(2 * i), b = a + 1;
    while (a + b < 20) {
      const float total = a + b;
      a += i > 1 ? total : 1;
      b += i > 1 ? total : 1;
    }
    want.insert(want.end(), {a, b});
  }
  // The condition's psum is over j, and it varies over i alone.
  EXPECT_EQ(values(mapped(x)), want);
  EXPECT_EQ(values(staged(mapped, x)[0]), want);
}

TEST(InABody, CollectivesAreRefusedWhereDevicesPart) {
  const auto branch = shard_map(
      [](Array x) {
        return cond(
            sum(x) > 3.f, [](Array a) { return psum(a, "i"); }, [](Array a) { return a; }, x);
      },
      mesh_i(), P("i"), P("i"));
  const auto want = {"psum over 'i' inside a cond whose condition varies over 'i'",
                     "Move the collective out of the cond", "psum, pmax, all_gather_invariant",
                     "control_flow_in_body_test.cpp"};
  expect_error<CollectiveError>([&] { branch(arange(8) * 1.f); }, want);
  expect_error<CollectiveError>([&] { make_jaxpr(branch)(arange(8) * 1.f); }, want);
  const auto loop = shard_map(
      [](Array x) {
        return while_loop([](Array c) { return sum(c) < 3.f; },
                          [](Array c) { return c + psum(c, "i"); }, x);
      },
      mesh_i(), P("i"), P("i"));
  const auto in_loop = {"psum over 'i' inside a while_loop whose condition varies"};
  expect_error<CollectiveError>([&] { loop(arange(8) * 1.f); }, in_loop);
  expect_error<CollectiveError>([&] { make_jaxpr(loop)(arange(8) * 1.f); }, in_loop);
  const auto total = jit([](Array a) { return psum(a, "i"); });
  const auto jitted = shard_map(
      [&](Array x) {
        return cond(
            sum(x) > 3.f, [&](Array a) { return total(a); }, [](Array a) { return a; }, x);
      },
      mesh_i(), P("i"), P("i"));
  for (int call = 0; call < 3; ++call)
    expect_error<CollectiveError>([&] { jitted(arange(8) * 1.f); }, want);
  const auto chosen = jit([](Array a) {  // by the host, which takes another branch
    return switch_(
        Array(0), std::tuple{[](Array b) { return b * 2.f; }, [](Array b) { return psum(b, "i"); }},
        a);
  });
  const auto passed_by = shard_map(
      [&](Array x) {
        return cond(
            sum(x) > 3.f, [&](Array a) { return chosen(a); }, [](Array a) { return a; }, x);
      },
      mesh_i(), P("i"), P("i"));
  for (int call = 0; call < 3; ++call)
    EXPECT_THAT(values(passed_by(arange(8) * 1.f)), ElementsAre(0, 1, 2, 3, 8, 10, 12, 14));
  // Under a predicate that is the same on all devices all of them meet.
  const auto fine = [](Array x) {
    return cond(
        psum(sum(x), "i") > 3.f, [](Array a) { return a * 0.f + psum(a, "i"); },
        [](Array a) { return a; }, x);
  };
  EXPECT_THAT(values(both(fine, ones({8}), P("i"), P("i"))), testing::Each(8));
}

TEST(InABody, WithoutCastsTheyAreAskedFor) {
  const ShardMapOptions strict{.auto_pbroadcast = false};
  const auto carry = shard_map(
      [](Array x, Array w) {
        return fori_loop(
            0, 2, [&](Array, Array c) { return c * 0.f + x + c * 0.f; }, w);
      },
      mesh_i(), {P("i"), P()}, P("i"), strict);
  expect_error<TypeError>([&] { make_jaxpr(carry)(arange(8) * 1.f, ones({1})); },
                          {"differ in the mesh axes over which they vary"});
  const auto init = shard_map(
      [](Array x, Array w) {
        return fori_loop(
            0, 2, [&](Array, Array) { return x; }, w);
      },
      mesh_i(), {P("i"), P()}, P("i"), strict);
  const auto want = {
      "fori_loop: carry has type f32[1] at the start of a trip, and the body returns "
      "f32[1]{i} for it: it varies over unlike mesh axes: write pbroadcast(…, 'i') "
      "around the init"};
  expect_error<TypeError>([&] { init(arange(8) * 1.f, ones({1})); }, want);
  expect_error<TypeError>([&] { make_jaxpr(init)(arange(8) * 1.f, ones({1})); }, want);
  const auto branches = shard_map(
      [](Array x, Array w) {
        return cond(
            sum(w) > 0.f, [&] { return x; }, [&] { return w; });
      },
      mesh_i(), {P("i"), P()}, P("i"), strict);
  expect_error<TypeError>([&] { make_jaxpr(branches)(arange(8) * 1.f, ones({1})); },
                          {"cond: result of the false branch has type f32[1] where another branch "
                           "has one that varies over 'i': cast it with pbroadcast(…, 'i')"});
  const auto condition = shard_map(
      [](Array x, Array w) {
        return while_loop([&](Array) { return sum(x) > 0.f; }, [](Array c) { return c; }, w);
      },
      mesh_i(), {P("i"), P()}, P("i"), strict);
  const auto varies = {"while_loop: carry has type f32[1] and the condition varies over 'i'",
                       "cast it with pbroadcast(…, 'i')"};
  expect_error<TypeError>([&] { condition(zeros({8}), ones({1})); }, varies);
  expect_error<TypeError>([&] { make_jaxpr(condition)(zeros({8}), ones({1})); }, varies);
}

TEST(InABody, Unchecked) {
  const auto body = [](Array x) {
    return fori_loop(
        0, 3,
        [&](Array, Array c) {
          return cond(
              sum(c) > 2.f, [&] { return c + x; }, [&] { return c + psum(sum(x), "i") * 0.f; });
        },
        Array(1.f) + x * 0.f);
  };
  const ShardMapOptions unchecked{.check_vma = false};
  const auto plain = [](Array x) {
    return fori_loop(
        0, 3, [&](Array, Array c) { return c + x; }, ones({1}));
  };
  EXPECT_THAT(values(both(plain, arange(8) * 1.f, P("i"), P("i"), unchecked)),
              ElementsAre(1, 4, 7, 10, 13, 16, 19, 22));
  expect_error<CollectiveError>(
      [&] { shard_map(body, mesh_i(), P("i"), P("i"), unchecked)(arange(8) * 1.f); },
      {"psum over 'i' inside a cond"});
}

TEST(InABody, PrintsShowTheDevicesThatCameBy) {
  const auto print = [](Array a) {
    debug::print("high {}", sum(a));
    return a;
  };
  const auto body = [&](Array x) {
    return cond(
        sum(x) > 5.f, print, [](Array a) { return a; }, x);
  };
  testing::internal::CaptureStdout();
  shard_map(body, mesh_i(), P("i"), P("i"))(arange(8) * 1.f).block_until_ready();
  const std::string want = "(i,) = (6,) high 6.0\n(i,) = (7,) high 7.0\n";
  EXPECT_EQ(testing::internal::GetCapturedStdout(), want);
  const auto printing = jit(print);
  const auto jit_in_a_branch = shard_map(
      [&](Array x) {
        return cond(
            sum(x) > 5.f, std::cref(printing), [](Array a) { return a; }, x);
      },
      mesh_i(), P("i"), P("i"));
  for (int call = 0; call < 3; ++call) {
    testing::internal::CaptureStdout();
    jit_in_a_branch(arange(8) * 1.f).block_until_ready();
    EXPECT_EQ(testing::internal::GetCapturedStdout(), want) << "call " << call;
  }
  const auto jitted = jit(shard_map(body, mesh_i(), P("i"), P("i")));
  for (int call = 0; call < 3; ++call) {
    testing::internal::CaptureStdout();
    jitted(arange(8) * 1.f).block_until_ready();
    EXPECT_EQ(testing::internal::GetCapturedStdout(), want) << "call " << call;
  }
}

// A program that was traced outside says nothing of variance: in a body it takes its operands'.
TEST(InABody, ProgramsThatWereTracedOutside) {
  const auto loops = [](Array x, Array w) {
    const Array a = fori_loop(
        0, 3, [&](Array, Array c) { return c * 2.f + w; }, x);
    const auto [b, ys] = scan(
        [&](Array c, Array v) {
          return std::pair{c + v, c * w};
        },
        Array(0.f), stack({x, a}));
    return std::tuple{a, b, ys};
  };
  const auto decisions = [](Array x, Array w) {
    const Array a =
        while_loop([](Array c) { return c < 100.f; }, [&](Array c) { return c * 2.f + w; }, x);
    const Array b = cond(
        x > 3.f, [&](Array c) { return c + w; }, [](Array c) { return c * 2.f; }, x);
    return std::tuple{a, b, jit([](Array c, Array d) { return c - d; })(x, w)};
  };
  const auto check = [](auto f) {
    const ClosedJaxpr outside = make_jaxpr(f)(ShapedArray({}, f32), ShapedArray({}, f32));
    std::vector<std::string> types;
    const auto in_body = [&](auto inner) {
      return shard_map(
          [&types, inner](Array x) {
            const std::vector<Array> out = inner(x[0], Array(2.f) + 1.f);
            types.clear();
            for (const Array& y : out) types.push_back(to_string(y.type()));
            return std::vector<Array>{reshape(out[0], {1}), reshape(out[1], {1}),
                                      reshape(out[2], {-1})};
          },
          mesh_i(), P("i"), P("i"));
    };
    const auto evaluated = in_body([&](Array x, Array w) {
      return eval_jaxpr(outside, {std::move(x), std::move(w)});
    });
    const auto called = in_body([&](Array x, Array w) {
      const auto [a, b, c] = f(x, w);
      return std::vector<Array>{a, b, c};
    });
    const Array x = split_i(arange(8));
    const std::vector<Array> want = called(x);
    const std::vector<std::string> wanted = types;
    const auto expect_alike = [&](const std::vector<Array>& got) {
      EXPECT_EQ(types, wanted);
      for (std::size_t k = 0; k < want.size(); ++k)
        EXPECT_EQ(values<float>(got[k]), values<float>(want[k])) << k;
    };
    expect_alike(evaluated(x));
    const auto jitted = jit(evaluated);
    for (int call = 0; call < 3; ++call) expect_alike(jitted(x));
  };
  check(loops);
  check(decisions);
}

TEST(InABody, EverythingIsUsableAfterAnError) {
  const auto bad = shard_map(
      [](Array x) {
        return while_loop([](Array c) { return sum(c) < 3.f; },
                          [](Array) -> Array { throw std::runtime_error("mine"); }, x);
      },
      mesh_i(), P("i"), P("i"));
  EXPECT_THROW(bad(zeros({8})), std::runtime_error);
  EXPECT_THROW(make_jaxpr(bad)(zeros({8})), std::runtime_error);
  const auto good = [](Array x) { return x + psum(x, "i"); };
  EXPECT_THAT(values(both(good, ones({8}), P("i"), P("i"))), testing::Each(9));
}

}  // namespace
}  // namespace shmap
