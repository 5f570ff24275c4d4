// shmap-test: devices
// Loops and branches: eager, staged and interpreted, in and out of shard_map bodies.
#include "shmap/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/runtime/host_transfer.h"
#include "core/transforms/lower.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using testing::ElementsAre;

template <class T = float>
std::vector<T> values(const Array& x) {
  return x.to_vector<T>();
}
// f staged and evaluated, equation by equation; what jit makes of it has to be the same, when it is
// planned and when it is replayed.
template <class F, class... A>
std::vector<Array> staged(F f, const A&... args) {
  const std::vector<Array> results = eval_jaxpr(make_jaxpr(f)(args...), {Array(args)...});
  const auto jitted = jit(f);
  for (int call = 0; call < 3; ++call) {
    detail::FlatTree flat;
    detail::flatten(jitted(args...), flat, flat.node);
    EXPECT_EQ(flat.leaves.size(), results.size());
    for (std::size_t k = 0; k < results.size(); ++k) {
      EXPECT_EQ(flat.leaves[k].type(), results[k].type()) << "result " << k << " of call " << call;
      EXPECT_EQ(copy_to_host(flat.leaves[k], "jit"), copy_to_host(results[k], "staged"))
          << "result " << k << " of call " << call;
    }
  }
  return results;
}
// A settled scalar, on a device.
template <class T>
Array scalar(T value) {
  return array({value}, Shape({}));
}
Mesh mesh_i() { return make_mesh({8}, {"i"}); }
Array split_i(const Array& x) { return device_put(x, NamedSharding(mesh_i(), P("i"))); }

// ---- fori_loop

TEST(ForiLoop, SumsAsAHostLoop) {
  const auto f = [](Array x) {
    return fori_loop(
        0, 5, [](Array i, Array c) { return c * 2.f + astype(i, f32); }, x);
  };
  float want = 3;
  for (int i = 0; i < 5; ++i) want = want * 2 + static_cast<float>(i);
  EXPECT_EQ(f(Array(3.f) + 0.f).item<float>(), want);
  EXPECT_EQ(staged(f, scalar(3.f))[0].item<float>(), want);
}

TEST(ForiLoop, IndexIsStronglyTyped) {
  fori_loop(
      0, 1,
      [](Array i, Array c) {
        EXPECT_EQ(i.dtype(), i32);
        EXPECT_FALSE(i.type().weak());
        return c;
      },
      0.f);
  fori_loop(
      std::int64_t{0}, 1,
      [](Array i, Array c) {
        EXPECT_EQ(i.dtype(), i64);
        return c;
      },
      0.f);
}

TEST(ForiLoop, AHostScalarTakesTheBodysType) {
  const Array x = arange(3) * 1.f;
  const auto f = [](Array v) {
    return fori_loop(
        0, 3, [&](Array i, Array c) { return c + v[i]; }, 0);
  };
  const Array eager = f(x);
  EXPECT_EQ(eager.dtype(), f32);
  EXPECT_EQ(eager.item<float>(), 3);
  EXPECT_EQ(staged(f, x)[0].item<float>(), 3);
}

TEST(ForiLoop, NoTripsGiveTheInit) {
  const auto f = [](Array x) {
    return fori_loop(
        4, 4, [](Array, Array c) { return c + 1.f; }, x);
  };
  EXPECT_EQ(f(scalar(2.f)).item<float>(), 2);
  EXPECT_EQ(staged(f, scalar(2.f))[0].item<float>(), 2);
  EXPECT_EQ(fori_loop(
                9, 1, [](Array, Array c) { return c + 1.f; }, scalar(2.f))
                .item<float>(),
            2);
}

TEST(ForiLoop, BoundsMayBeArrays) {
  const auto f = [](Array n, Array x) {
    return fori_loop(
        1, n, [](Array i, Array c) { return c + i; }, x);
  };
  EXPECT_EQ(f(scalar(5), scalar(0)).item<int>(), 10);
  EXPECT_EQ(staged(f, scalar(5), scalar(0))[0].item<int>(), 10);
}

TEST(ForiLoop, StaticBoundsAreAScan) {
  const auto f = [](Array x) {
    return fori_loop(
        0, 5, [](Array i, Array c) { return c + astype(i, f32); }, x);
  };
  EXPECT_EQ(
      to_string(make_jaxpr(f)(ShapedArray({2}, f32))),
      "{ lambda a:f32[2] .\n"
      "  let b:i32[] c:f32[2] = scan[jaxpr={ lambda a:i32[], b:f32[2] .\n"
      "                                      let c:f32[] = convert_element_type[new_dtype=float32 "
      "weak_type=False] a\n"
      "                                          d:f32[2] = add b c\n"
      "                                          e:i32[] = add a 1\n"
      "                                      in ( e, d ) }\n"
      "                              length=5\n"
      "                              num_carry=2\n"
      "                              num_consts=0\n"
      "                              reverse=False] 0 a\n"
      "  in ( c ) }");
}

TEST(ForiLoop, TracedBoundsAreAWhile) {
  const auto f = [](Array n, Array x) {
    return fori_loop(
        0, n, [](Array, Array c) { return c * 2.f; }, x);
  };
  EXPECT_EQ(to_string(make_jaxpr(f)(ShapedArray({}, i32), ShapedArray({2}, f32))),
            "{ lambda a:i32[], b:f32[2] .\n"
            "  let c:i32[] d:f32[2] = while[body_jaxpr={ lambda a:i32[], b:f32[2] .\n"
            "                                            let c:f32[2] = mul b 2.0\n"
            "                                                d:i32[] = add a 1\n"
            "                                            in ( d, c ) }\n"
            "                               body_nconsts=0\n"
            "                               cond_jaxpr={ lambda a:i32[], b:i32[], c:f32[2] .\n"
            "                                            let d:bool[] = lt b a\n"
            "                                            in ( d ) }\n"
            "                               cond_nconsts=1] a 0 b\n"
            "  in ( d ) }");
}

TEST(ForiLoop, NestsAndTakesTrees) {
  struct State {
    Array a;
    std::vector<Array> list;
    float scale;
  };
  const auto f = [](Array x) {
    State s = fori_loop(
        0, 3,
        [](Array i, State c) {
          c.list[0] = fori_loop(
              0, 2, [&](Array j, Array y) { return y + i * j; }, c.list[0]);
          c.a = c.a * c.scale;
          return c;
        },
        State{x, {scalar(1), scalar(2)}, 2.f});
    return std::tuple{s.a, s.list};
  };
  int want = 1;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 2; ++j) want += i * j;
  const auto [a, list] = f(scalar(1.5f));
  EXPECT_EQ(a.item<float>(), 12);
  EXPECT_EQ(list[0].item<int>(), want);
  EXPECT_EQ(list[1].item<int>(), 2);
  const std::vector<Array> again = staged(f, scalar(1.5f));
  EXPECT_EQ(again[0].item<float>(), 12);
  EXPECT_EQ(again[1].item<int>(), want);
}

TEST(ForiLoop, AnIndexOutOfRangeClampsInBothModes) {
  const auto f = [](Array x) {
    return fori_loop(
        0, 4, [&](Array i, Array c) { return c + x[i]; }, 0.f);
  };
  const Array x = array({1.f, 10.f}, {2});
  EXPECT_EQ(f(x).item<float>(), 31);
  EXPECT_EQ(staged(f, x)[0].item<float>(), 31);
}

TEST(ForiLoop, WritesInPlace) {
  // A carry has one owner: no buffer is allocated but the first ones.
  Array x = zeros({1 << 16}) + 1.f;
  x.block_until_ready();
  reset_counters();
  x = fori_loop(
      0, 50, [](Array, Array c) { return std::move(c) + 1.f; }, std::move(x));
  x.block_until_ready();
  EXPECT_LE(counters().allocations, 2);
  EXPECT_EQ(values(x)[7], 51);
}

// ---- while_loop

TEST(WhileLoop, Collatz) {
  const auto f = [](Array n) {
    return while_loop(
        [](auto c) { return c.first != 1; },
        [](std::pair<Array, Array> c) {
          return std::pair{where(c.first % 2 == 0, c.first / 2, c.first * 3 + 1), c.second + 1};
        },
        std::pair{n, scalar(0)});
  };
  const auto g = [&](Array n) {
    return while_loop(
        [](auto c) { return c.first != 1; },
        [](std::pair<Array, Array> c) {
          return std::pair{where(c.first % 2 == 0, c.first >> 1, c.first * 3 + 1), c.second + 1};
        },
        std::pair{n, scalar(0)});
  };
  int n = 27, steps = 0;
  for (; n != 1; ++steps) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
  EXPECT_EQ(g(scalar(27)).second.item<int>(), steps);
  EXPECT_EQ(staged(g, scalar(27))[1].item<int>(), steps);
  // i32 / i32 is f32.
  expect_error<TypeError>([&] { f(scalar(28)); },
                          {"while_loop: carry[0] has type i32[] at the start of a trip",
                           "the body returns f32[]", "astype(…, i32)"});
  expect_error<TypeError>([&] { make_jaxpr(f)(scalar(28)); },
                          {"while_loop: carry[0] has type i32[] at the start of a trip",
                           "the body returns f32[]", "astype(…, i32)"});
}

TEST(WhileLoop, NoTrips) {
  const auto f = [](Array x) {
    return while_loop([](Array) { return false; }, [](Array c) { return c + 1.f; }, x);
  };
  EXPECT_EQ(f(scalar(2.f)).item<float>(), 2);
  EXPECT_EQ(staged(f, scalar(2.f))[0].item<float>(), 2);
}

TEST(WhileLoop, ClosedOverValuesAreOperands) {
  const Array w = array({1.f, 2.f}, {2});
  const auto f = [&](Array x, Array limit) {
    return while_loop([&](Array c) { return sum(c) < limit; }, [&](Array c) { return c + w + w; },
                      x);
  };
  EXPECT_EQ(to_string(make_jaxpr(f)(ShapedArray({2}, f32), ShapedArray({}, f32))),
            "{ lambda a:f32[2], b:f32[2], c:f32[] .\n"
            "  let d:f32[2] = while[body_jaxpr={ lambda a:f32[2], b:f32[2] .\n"
            "                                    let c:f32[2] = add b a\n"
            "                                        d:f32[2] = add c a\n"
            "                                    in ( d ) }\n"
            "                       body_nconsts=1\n"
            "                       cond_jaxpr={ lambda a:f32[], b:f32[2] .\n"
            "                                    let c:f32[] = reduce_sum[axes=(0,)] b\n"
            "                                        d:bool[] = lt c a\n"
            "                                    in ( d ) }\n"
            "                       cond_nconsts=1] c a b\n"
            "  in ( d ) }");
  EXPECT_THAT(values(f(zeros({2}), 10.f)), ElementsAre(4, 8));
  EXPECT_THAT(values(staged(f, zeros({2}), scalar(10.f))[0]), ElementsAre(4, 8));
}

TEST(WhileLoop, TheConditionIsABoolScalar) {
  const auto f = [](Array x) {
    return while_loop([](Array c) { return c; }, [](Array c) { return c; }, x);
  };
  const auto want = {"while_loop: what the condition returns has type f32[2]",
                     "a bool scalar is wanted", "any(…) or all(…)", "control_flow_test.cpp"};
  expect_error<TypeError>([&] { f(zeros({2})); }, want);
  expect_error<TypeError>([&] { make_jaxpr(f)(zeros({2})); }, want);
}

TEST(WhileLoop, ACarryKeepsShapeAndStructure) {
  const auto shape = [](Array x) {
    return while_loop([](auto) { return true; },
                      [](std::vector<Array> c) {
                        c[1] = concatenate({c[1], c[1]}, 0);
                        return c;
                      },
                      std::vector<Array>{x, x});
  };
  const auto want = {
      "while_loop: carry[1] has type f32[2] at the start of a trip, and the body "
      "returns f32[4] for it: a carry keeps its shape"};
  expect_error<TypeError>([&] { shape(zeros({2})); }, want);
  expect_error<TypeError>([&] { make_jaxpr(shape)(zeros({2})); }, want);
  const auto length = [](Array x) {
    return while_loop([](auto) { return true; },
                      [](std::vector<Array> c) {
                        c.push_back(c[0]);
                        return c;
                      },
                      std::vector<Array>{x, x});
  };
  const auto structure = {"while_loop: the carry begins as [*, *], and the body returns [*, *, *]"};
  expect_error<TypeError>([&] { length(zeros({2})); }, structure);
  expect_error<TypeError>([&] { make_jaxpr(length)(zeros({2})); }, structure);
}

// ---- scan

TEST(Scan, CumulativeSum) {
  const auto f = [](Array init, Array xs) {
    return scan([](Array c, Array x) { return std::pair{c + x, c * 10.f}; }, init, xs);
  };
  const Array xs = arange(4) * 1.f;
  const auto [carry, ys] = f(1.f, xs);
  EXPECT_EQ(carry.item<float>(), 7);
  EXPECT_THAT(values(ys), ElementsAre(10, 10, 20, 40));
  const std::vector<Array> again = staged(f, scalar(1.f), xs);
  EXPECT_EQ(again[0].item<float>(), 7);
  EXPECT_THAT(values(again[1]), ElementsAre(10, 10, 20, 40));
}

TEST(Scan, Reverse) {
  const auto f = [](Array init, Array xs) {
    return scan([](Array c, Array x) { return std::pair{c + x, c}; }, init, xs, {.reverse = true});
  };
  const auto [carry, ys] = f(0, arange(4));  // f32; the first y is the host int yet
  EXPECT_EQ(carry.item<float>(), 6);
  EXPECT_THAT(values(ys), ElementsAre(6, 5, 3, 0));
  EXPECT_THAT(values(staged(f, Array(0), arange(4))[1]), ElementsAre(6, 5, 3, 0));
}

TEST(Scan, OverNothingForALength) {
  const auto f = [](Array x) {
    return scan([](Array c, auto) { return std::pair{c * 2, c}; }, x, none, {.length = 4});
  };
  const auto [carry, ys] = f(scalar(1));
  EXPECT_EQ(carry.item<int>(), 16);
  EXPECT_THAT(values<int>(ys), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(values<int>(staged(f, scalar(1))[1]), ElementsAre(1, 2, 4, 8));
}

TEST(Scan, OfNoTripsHasEmptyYs) {
  const auto f = [](Array init, Array xs) {
    return scan([](Array c, Array x) { return std::pair{c, x * 2.f}; }, init, xs);
  };
  const auto [carry, ys] = f(scalar(1), zeros({0, 3}));
  EXPECT_EQ(carry.item<int>(), 1);
  EXPECT_EQ(ys.shape(), Shape({0, 3}));
  EXPECT_EQ(ys.dtype(), f32);
  EXPECT_EQ(staged(f, scalar(1), zeros({0, 3}))[1].shape(), Shape({0, 3}));
}

TEST(Scan, TakesTrees) {
  const auto f = [](Array a, Array b) {
    auto [carry, ys] = scan(
        [](std::tuple<Array, Array> c, std::vector<Array> x) {
          auto [s, t] = c;
          return std::tuple{std::tuple{s + x[0], t * 2.f},
                            std::map<std::string, Array>{{"p", x[1]}, {"q", s}}};
        },
        std::tuple{a, b}, std::vector<Array>{arange(3) * 1.f, reshape(arange(6), {3, 2})});
    return std::tuple{carry, ys};
  };
  const auto [carry, ys] = f(scalar(0.f), scalar(1.f));
  EXPECT_EQ(std::get<0>(carry).item<float>(), 3);
  EXPECT_EQ(std::get<1>(carry).item<float>(), 8);
  EXPECT_THAT(values(ys.at("p")), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(values(ys.at("q")), ElementsAre(0, 0, 1));
  const std::vector<Array> again = staged(f, scalar(0.f), scalar(1.f));
  EXPECT_THAT(values(again[2]), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(values(again[3]), ElementsAre(0, 0, 1));
}

TEST(Scan, Prints) {
  const Array w = array({1.f, 2.f}, {2});
  const auto f = [&](Array c, Array xs) {
    return scan([&](Array s, Array x) { return std::pair{s + x * w, sum(s)}; }, c, xs);
  };
  EXPECT_EQ(to_string(make_jaxpr(f)(ShapedArray({2}, f32), ShapedArray({3, 2}, f32))),
            "{ lambda a:f32[2], b:f32[2], c:f32[3,2] .\n"
            "  let d:f32[2] e:f32[3] = scan[jaxpr={ lambda a:f32[2], b:f32[2], c:f32[2] .\n"
            "                                       let d:f32[2] = mul c a\n"
            "                                           e:f32[2] = add b d\n"
            "                                           f:f32[] = reduce_sum[axes=(0,)] b\n"
            "                                       in ( e, f ) }\n"
            "                               length=3\n"
            "                               num_carry=1\n"
            "                               num_consts=1\n"
            "                               reverse=False] a b c\n"
            "  in ( d, e ) }");
}

TEST(Scan, WrongXs) {
  const auto body = [](Array c, auto) { return std::pair{c, c}; };
  expect_error<ValueError>([&] { scan(body, scalar(0), scalar(1.f)); },
                           {"scan: xs has type f32[]", "a scalar has none"});
  expect_error<ValueError>(
      [&] {
        scan(body, scalar(0), std::vector<Array>{arange(3), arange(4)});
      },
      {"scan: xs[1] has type f32[4]", "has the extent 4, and xs[0] says 3"});
  expect_error<ValueError>([&] { scan(body, scalar(0), arange(3), {.length = 2}); },
                           {"scan: xs has type f32[3]", "and length says 2"});
  expect_error<ValueError>([&] { scan(body, scalar(0), none); },
                           {"scan: xs has no arrays", "{.length = n}"});
}

TEST(Scan, ManyTrips) {
  const auto [carry, ys] = scan(
      [](Array c, Array x) {
        return std::pair{c + x, c + x};
      },
      scalar(0), ones({2000}, i32));
  EXPECT_EQ(carry.item<int>(), 2000);
  EXPECT_EQ(values<int>(ys)[1999], 2000);
}

TEST(Scan, OfAShardMapKeepsItsCarrysSharding) {
  const auto step = shard_map([](Array x) { return x * 2.f + psum(sum(x), "i") * 0.f; }, mesh_i(),
                              P("i"), P("i"));
  const Array x = split_i(ones({16}));
  step(x).block_until_ready();
  reset_counters();
  const auto [carry, ys] = scan(
      [&](Array c, auto) {
        return std::pair{step(c), sum(c)};
      },
      x, none, {.length = 3});
  EXPECT_EQ(carry.sharding(), x.sharding());
  EXPECT_EQ(counters().copied_bytes, 0);
  EXPECT_THAT(values(carry), testing::Each(8));
  EXPECT_THAT(values(ys), ElementsAre(16, 32, 64));
}

// ---- cond, switch_

TEST(Cond, TakesOneBranch) {
  const auto f = [](Array p, Array x) {
    return cond(
        p, [](Array a) { return a * 2.f; }, [](Array a) { return -a; }, x);
  };
  for (const bool p : {true, false}) {
    const float want = p ? 6 : -3;
    EXPECT_EQ(f(p, 3.f).item<float>(), want);
    EXPECT_EQ(f(scalar(p), scalar(3.f)).item<float>(), want);
    EXPECT_EQ(staged(f, scalar(p), scalar(3.f))[0].item<float>(), want);
  }
  // Numbers count as bools do in C++.
  EXPECT_EQ(f(scalar(2.f), scalar(3.f)).item<float>(), 6);
  EXPECT_EQ(f(0, scalar(3.f)).item<float>(), -3);
}

TEST(Cond, EagerlyTheOtherBranchIsNotCalled) {
  int called = 0;
  const Array x = scalar(1.f);
  EXPECT_EQ(cond(
                true, [&] { return x; },
                [&] {
                  ++called;
                  return x;
                })
                .item<float>(),
            1);
  EXPECT_EQ(called, 0);
}

TEST(Cond, PrintsItsBranchesWithEachConstantOnce) {
  const Array w = array({1.f, 2.f}, {2}), v = array({3.f, 4.f}, {2});
  const auto f = [&](Array p, Array x) {
    return cond(
        p, [&](Array a) { return a + w; }, [&](Array a) { return a * v + w; }, x);
  };
  EXPECT_EQ(to_string(make_jaxpr(f)(ShapedArray({}, bool_), ShapedArray({2}, f32))),
            "{ lambda a:f32[2], b:f32[2], c:bool[], d:f32[2] .\n"
            "  let e:f32[2] = cond[branches[0]={ lambda a:f32[2], b:f32[2], c:f32[2] .\n"
            "                                    let d:f32[2] = mul c a\n"
            "                                        e:f32[2] = add d b\n"
            "                                    in ( e ) }\n"
            "                      branches[1]={ lambda a:f32[2], b:f32[2], c:f32[2] .\n"
            "                                    let d:f32[2] = add c b\n"
            "                                    in ( d ) }] c a b d\n"
            "  in ( e ) }");
  EXPECT_THAT(values(staged(f, scalar(false), ones({2}))[0]), ElementsAre(4, 6));
}

TEST(Cond, HostScalarsTakeTheOtherBranchsType) {
  const auto f = [](Array p, Array x) {
    return cond(
        p, [](Array a) { return a; }, [](Array) { return Array(0); }, x);
  };
  EXPECT_EQ(staged(f, scalar(false), scalar(3.f))[0].item<float>(), 0);
  EXPECT_EQ(make_jaxpr(f)(scalar(false), scalar(3.f)).out_types()[0].dtype(), f32);
}

TEST(Cond, BranchesAgreeInType) {
  const auto dtype = [](Array p, Array x) {
    return cond(
        p,
        [](Array a) {
          return std::tuple{a, a};
        },
        [](Array a) {
          return std::tuple{a, astype(a, i32)};
        },
        x);
  };
  expect_error<TypeError>([&] { make_jaxpr(dtype)(scalar(true), scalar(1.f)); },
                          {"cond: result[1] has type i32[] in the false branch and f32[] in the "
                           "true branch: branches have to agree in dtype",
                           "astype(…, i32) around what the true branch returns"});
  const auto shape = [](Array p, Array x) {
    return cond(
        p, [](Array a) { return a; }, [](Array a) { return a[0]; }, x);
  };
  expect_error<TypeError>([&] { make_jaxpr(shape)(scalar(true), zeros({2})); },
                          {"cond: result has type f32[] in the false branch and f32[2] in the "
                           "true branch: branches have to agree in shape"});
  const auto structure = [](Array p, Array x) {
    return cond(
        p, [](Array a) { return std::vector<Array>{a}; },
        [](Array a) {
          return std::vector<Array>{a, a};
        },
        x);
  };
  expect_error<TypeError>([&] { make_jaxpr(structure)(scalar(true), zeros({2})); },
                          {"cond: the false branch returns [*, *] and the true branch [*]"});
  expect_error<TypeError>(
      [&] {
        cond(
            zeros({2}), [] { return 1.f; }, [] { return 2.f; });
      },
      {"cond: the predicate has type f32[2], and a bool scalar is wanted"});
}

TEST(Switch, ClampsAndTakesBothForms) {
  const auto f0 = [](Array a) { return a; };
  const auto f1 = [](Array a) { return a * 10.f; };
  const auto f2 = [](Array a) { return a * 100.f; };
  const auto g = [&](Array i, Array x) { return switch_(i, {f0, f1, f2}, x); };
  const auto h = [&](Array i, Array x) { return switch_(i, std::tuple{f0, f1, f2}, x); };
  for (const auto& [i, want] : {std::pair(-4, 2.f), {0, 2.f}, {1, 20.f}, {2, 200.f}, {9, 200.f}}) {
    EXPECT_EQ(g(scalar(i), scalar(2.f)).item<float>(), want);
    EXPECT_EQ(h(i, scalar(2.f)).item<float>(), want);
    EXPECT_EQ(staged(g, scalar(i), scalar(2.f))[0].item<float>(), want);
    EXPECT_EQ(staged(h, scalar(i), scalar(2.f))[0].item<float>(), want);
  }
  const auto pair = [](Array a) { return std::tuple{a, a + 1.f}; };
  const auto [p, q] = switch_(1, std::tuple{pair, pair}, scalar(1.f));
  EXPECT_EQ(q.item<float>(), 2);
  expect_error<TypeError>([&] { g(scalar(1.f), scalar(2.f)); },
                          {"switch_: the index has type f32[], and an integer scalar is wanted"});
}

// ---- in a shard_map body

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
  const auto want = {"psum over 'i' inside a cond that is decided by a value which varies over 'i'",
                     "Move it out of the cond", "psum, pmax, all_gather_invariant",
                     "control_flow_test.cpp"};
  expect_error<CollectiveError>([&] { branch(arange(8) * 1.f); }, want);
  expect_error<CollectiveError>([&] { make_jaxpr(branch)(arange(8) * 1.f); }, want);
  const auto loop = shard_map(
      [](Array x) {
        return while_loop([](Array c) { return sum(c) < 3.f; },
                          [](Array c) { return c + psum(c, "i"); }, x);
      },
      mesh_i(), P("i"), P("i"));
  const auto in_loop = {
      "psum over 'i' inside a while_loop that is decided by a value which varies"};
  expect_error<CollectiveError>([&] { loop(arange(8) * 1.f); }, in_loop);
  expect_error<CollectiveError>([&] { make_jaxpr(loop)(arange(8) * 1.f); }, in_loop);
  // Under a predicate that is the same everywhere all of them meet.
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
  const auto body = [](Array x) {
    return cond(
        sum(x) > 5.f,
        [](Array a) {
          debug::print("high {}", sum(a));
          return a;
        },
        [](Array a) { return a; }, x);
  };
  testing::internal::CaptureStdout();
  shard_map(body, mesh_i(), P("i"), P("i"))(arange(8) * 1.f).block_until_ready();
  const std::string want = "(i,) = (6,) high 6.0\n(i,) = (7,) high 7.0\n";
  EXPECT_EQ(testing::internal::GetCapturedStdout(), want);
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

// ---- lowered: what each device does, as the body of a shard_map would

template <class F>
std::string lowered(F f, const Array& x) {
  const ClosedJaxpr j = make_jaxpr(f)(x);
  const Sharding* in[] = {stored_of(x)->sharding};
  const Lowered program = lower(*j.impl().jaxpr, j.consts(), stored_of(x)->mesh, in);
  typecheck_jaxpr(*program.jaxpr);
  return to_string(*program.jaxpr);
}

TEST(Lowered, ACarryKeepsItsSharding) {
  const auto f = [](Array x) {
    return fori_loop(
        0, 2, [](Array, Array c) { return c + sum(c); }, x);
  };
  EXPECT_EQ(lowered(f, split_i(ones({16}))),
            "{ lambda a:f32[2]{i} .\n"
            "  let b:i32[] c:f32[2]{i} = scan[jaxpr={ lambda a:i32[], b:f32[2]{i} .\n"
            "                                         let c:f32[]{i} = reduce_sum[axes=(0,)] b\n"
            "                                             d:f32[] = psum[axes=('i',)] c\n"
            "                                             e:f32[2]{i} = add b d\n"
            "                                             f:i32[] = add a 1\n"
            "                                         in ( f, e ) }\n"
            "                                 length=2\n"
            "                                 num_carry=2\n"
            "                                 num_consts=0\n"
            "                                 reverse=False] 0 a\n"
            "  in ( c ) }");
}

TEST(Lowered, AnUnplacedInitTakesTheBodysSharding) {
  const auto f = [](Array x) {
    return fori_loop(
        0, 2, [&](Array, Array c) { return c + x; }, zeros({16}));
  };
  const std::string text = lowered(f, split_i(ones({16})));
  EXPECT_NE(text.find("pscatter"), std::string::npos) << text;
  EXPECT_EQ(text.find("all_gather"), std::string::npos) << text;
}

TEST(Lowered, BranchesAndConditionsWorkOnBlocks) {
  const auto f = [](Array x) {
    const Array y =
        while_loop([](Array c) { return sum(c) < 100.f; }, [](Array c) { return c * 2.f; }, x);
    return cond(
        sum(y) > 3.f, [](Array a) { return a + 1.f; }, [](Array a) { return a; }, y);
  };
  const std::string text = lowered(f, split_i(ones({16})));
  EXPECT_EQ(text.find("all_gather"), std::string::npos) << text;
  EXPECT_NE(text.find("d:f32[] = psum"), std::string::npos) << text;
}

}  // namespace
}  // namespace shmap
