// shmap-test: devices
// cond and switch_, eager, staged and interpreted; and what loops and branches are lowered to.
#include "shmap/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/compiler/lowering/lower.h"
#include "shmap/shmap.h"
#include "tests/support/control_flow.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using test::scalar;
using test::split_i;
using test::staged;
using test::values;
using testing::ElementsAre;

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
  // Each device makes its own part of the zeros.
  EXPECT_NE(text.find("f32[2] = broadcast_in_dim"), std::string::npos) << text;
  EXPECT_EQ(text.find("pscatter"), std::string::npos) << text;
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
