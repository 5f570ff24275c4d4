// shmap-test: devices
// fori_loop, while_loop and scan: eager, staged and interpreted.
#include "shmap/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/control_flow.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using test::mesh_i;
using test::scalar;
using test::split_i;
using test::staged;
using test::values;
using testing::ElementsAre;

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
  // A carry has one owner: only the first buffers are allocated.
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
                     "a bool scalar is wanted", "any(…) or all(…)", "loops_test.cpp"};
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

}  // namespace
}  // namespace shmap
