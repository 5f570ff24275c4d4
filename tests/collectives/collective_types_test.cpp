// shmap-test: devices
// The variance of every collective's result, the casts that are inserted, and the errors where they
// are not (JEP 17111's typing table).
#include <gtest/gtest.h>

#include <functional>

#include "tests/collectives/blocks.h"
#include "tests/support/error_text.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

Mesh mesh81() { return make_mesh({8, 1}, {"i", "j"}); }
Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }

// The type of body(block), where x is placed by `spec`, eagerly. Checks that the traced type is the
// same.
std::string type_in(const Mesh& mesh, const Array& x, const P& spec,
                    const std::function<Array(Array)>& body, ShardMapOptions options = {}) {
  std::string type;
  const auto mapped = shard_map(
      [&](Array block) {
        type = to_string(body(block).type());
        return block;
      },
      mesh, spec, spec, options);
  mapped(x);
  const std::string eager = std::exchange(type, "");
  jit(mapped)(x);
  EXPECT_EQ(type, eager) << "under jit";
  return eager;
}

TEST(CollectiveTypes, TheTypingTable) {
  const auto varying = [](const Shape& block, const std::function<Array(Array)>& body) {
    std::vector<std::int64_t> shape(block.begin(), block.end());
    shape[0] *= 8;
    return type_in(mesh81(), zeros(Shape(shape)), P("i"), body);
  };
  const auto invariant = [](const Shape& block, const std::function<Array(Array)>& body) {
    return type_in(mesh81(), zeros(block), P(), body);
  };
  using A = Array;
  EXPECT_EQ(varying({3}, [](A x) { return psum(x, "i"); }), "f32[3]");
  EXPECT_EQ(varying({3}, [](A x) { return pmean(x, "i"); }), "f32[3]");
  EXPECT_EQ(varying({3}, [](A x) { return pmax(x, "i"); }), "f32[3]");
  EXPECT_EQ(varying({3}, [](A x) { return pmin(x, "i"); }), "f32[3]");
  EXPECT_EQ(invariant({3}, [](A x) { return pbroadcast(x, "i"); }), "f32[3]{i}");
  EXPECT_EQ(invariant({3}, [](A x) { return pvary(x, {"j", "i"}); }), "f32[3]{i,j}");
  EXPECT_EQ(varying({16}, [](A x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); }),
            "f32[16]{i}");
  EXPECT_EQ(varying({3}, [](A) { return axis_index("i"); }), "i32[]{i}");
  EXPECT_EQ(varying({3}, [](A) { return axis_index({"i", "j"}); }), "i32[]{i,j}");
  EXPECT_EQ(varying({16}, [](A x) { return psum_scatter(x, "i", {.tiled = true}); }), "f32[2]{i}");
  EXPECT_EQ(varying({8, 2}, [](A x) { return psum_scatter(x, "i"); }), "f32[2]{i}");
  EXPECT_EQ(varying({2}, [](A x) { return all_gather(x, "i", {.tiled = true}); }), "f32[16]{i}");
  EXPECT_EQ(varying({2}, [](A x) { return all_gather(x, "i"); }), "f32[8,2]{i}");
  EXPECT_EQ(varying({2}, [](A x) { return all_gather(x, "i", {.axis = -1}); }), "f32[2,8]{i}");
  EXPECT_EQ(varying({2}, [](A x) { return all_gather_invariant(x, "i", {.tiled = true}); }),
            "f32[16]");
  EXPECT_EQ(invariant({16}, [](A x) { return pscatter(x, "i", {.tiled = true}); }), "f32[2]{i}");
  EXPECT_EQ(varying({2}, [](A x) { return ppermute(x, "i", {{0, 1}}); }), "f32[2]{i}");
  EXPECT_EQ(varying({2},
                    [](A x) {
                      return pshuffle(x, "i", {1, 0, 3, 2, 5, 4, 7, 6});
                    }),
            "f32[2]{i}");
  EXPECT_EQ(varying({2, 8}, [](A x) { return pswapaxes(x, "i", 1); }), "f32[2,8]{i}");
  EXPECT_EQ(varying({2}, [](A x) { return broadcast_from(x, "i", 3); }), "f32[2]");
}

TEST(CollectiveTypes, OtherAxesStayAsTheyAre) {
  const Array x = zeros({8, 4});
  const P both = P(axes("i", "j"));
  EXPECT_EQ(type_in(mesh42(), x, both, [](Array b) { return psum(b, "i"); }), "f32[1,4]{j}");
  EXPECT_EQ(type_in(mesh42(), x, both, [](Array b) { return psum(b, {"j", "i"}); }), "f32[1,4]");
  EXPECT_EQ(type_in(mesh42(), x, both, [](Array b) { return all_gather(b, "j"); }),
            "f32[2,1,4]{i,j}");
  EXPECT_EQ(type_in(mesh42(), x, both, [](Array b) { return all_gather_invariant(b, "j"); }),
            "f32[2,1,4]{i}");
  EXPECT_EQ(
      type_in(mesh42(), x, P("i"),
              [](Array b) { return pscatter(b, "j", {.scatter_dimension = 1, .tiled = true}); }),
      "f32[2,2]{i,j}");
}

TEST(CollectiveTypes, GroupsDifferSoTheirResultsVary) {
  const Mesh mesh = make_mesh({8}, "i");
  const Groups halves = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  const Array x = zeros({8, 4});
  const auto of = [&](const std::function<Array(Array)>& body) {
    return type_in(mesh, x, P("i"), body);
  };
  EXPECT_EQ(of([&](Array b) { return psum(b, "i", {.axis_index_groups = halves}); }),
            "f32[1,4]{i}");
  EXPECT_EQ(of([&](Array b) { return pmean(b, "i", {.axis_index_groups = halves}); }),
            "f32[1,4]{i}");
  EXPECT_EQ(of([&](Array b) { return pmax(b, "i", {.axis_index_groups = halves}); }),
            "f32[1,4]{i}");
  EXPECT_EQ(
      of([&](Array b) { return all_gather_invariant(b, "i", {.axis_index_groups = halves}); }),
      "f32[4,1,4]{i}");
}

TEST(CollectiveTypes, Dtypes) {
  const Mesh mesh = make_mesh({8}, "i");
  const auto of = [&](const Array& x, const std::function<Array(Array)>& body) {
    return type_in(mesh, x, P("i"), body);
  };
  for (DType t : {i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64}) {
    EXPECT_EQ(of(zeros({8}, t), [](Array b) { return psum(b, "i"); }),
              std::string(short_name(t)) + "[1]");
    EXPECT_EQ(of(zeros({8}, t), [](Array b) { return pmax(b, "i"); }),
              std::string(short_name(t)) + "[1]");
  }
  EXPECT_EQ(of(zeros({8}, bool_), [](Array b) { return psum(b, "i"); }), "i32[1]");
  EXPECT_EQ(of(zeros({8}, bool_), [](Array b) { return pmax(b, "i"); }), "bool[1]");
  EXPECT_EQ(of(zeros({64}, bool_), [](Array b) { return psum_scatter(b, "i", {.tiled = true}); }),
            "i32[1]{i}");
  EXPECT_EQ(of(zeros({8}, i32), [](Array b) { return pmean(b, "i"); }), "f32[1]");
  EXPECT_EQ(of(zeros({8}, bf16), [](Array b) { return pmean(b, "i"); }), "bf16[1]");
  EXPECT_EQ(of(zeros({8}, f64), [](Array b) { return pmean(b, "i"); }), "f64[1]");
}

// psum casts an operand that does not vary: the sum counts it once per device.
TEST(CollectiveTypes, InvariantOperandsAreCast) {
  const Array x = arange(4);
  const auto body = [](Array b) {
    const Array once = psum(b, "i"), twice = psum(once, "i");
    EXPECT_EQ(to_string(twice.type()), "f32[1]");
    EXPECT_EQ(twice.item<float>(), 24.f);  // 4 devices × (0 + 1 + 2 + 3)
    EXPECT_EQ(to_string(psum(b, {"i", "j"}).type()), "f32[1]");
    EXPECT_EQ(psum(b, {"i", "j"}).item<float>(), 12.f);
    EXPECT_EQ(pmax(once, {"j"}).item<float>(), 6.f);
    EXPECT_EQ(pmean(once, "i").item<float>(), 6.f);
    EXPECT_EQ(to_string(all_gather(once, "i", {.tiled = true}).type()), "f32[4]{i}");
    EXPECT_EQ(to_string(all_gather_invariant(b, {"i", "j"}, {.tiled = true}).type()), "f32[8]");
    EXPECT_EQ(to_string(ppermute(once, "j", {{0, 1}}).type()), "f32[1]{j}");
    EXPECT_EQ(to_string(broadcast_from(once, "i", 2).type()), "f32[1]");
    EXPECT_EQ(psum(pbroadcast(2.f, "i"), "i").item<float>(), 8.f);
    return b;
  };
  shard_map(body, mesh42(), P("i"), P("i"))(x);
}

TEST(CollectiveTypes, WhatTheBodyClosesOverIsInvariant) {
  const Array captured = array<float>({1, 2}, {2});
  const auto body = [&](Array b) {
    EXPECT_EQ(to_string(pbroadcast(captured, "i").type()), "f32[2]{i}");
    EXPECT_EQ(psum(captured, "i").to_vector<float>(), std::vector<float>({4, 8}));
    return b;
  };
  shard_map(body, mesh42(), P("i"), P("i"))(arange(4));
}

TEST(CollectiveTypes, CastsOfVaryingValuesAreErrors) {
  const auto of = [&](const std::function<Array(Array)>& body) {
    return [body] { type_in(mesh42(), zeros({8, 4}), P(axes("i", "j")), body); };
  };
  expect_error<TypeError>(of([](Array b) { return pbroadcast(b, "i"); }),
                          {"pbroadcast over 'i'", "f32[1,4]{i,j}", "varies over 'i' already",
                           "collective_types_test.cpp"});
  expect_error<TypeError>(of([](Array b) {
                            return pvary(psum(b, "i"), {"i", "j"});
                          }),
                          {"f32[1,4]{j}", "varies over 'j' already"});
  expect_error<TypeError>(
      of([](Array b) { return pscatter(b, "i", {.scatter_dimension = 1, .tiled = true}); }),
      {"pscatter over 'i'", "varies over 'i' already"});
}

TEST(CollectiveTypes, WithoutAutoPbroadcastWrongVarianceIsAnErrorEverywhere) {
  const ShardMapOptions strict{.auto_pbroadcast = false};
  const Array x = zeros({8});
  const auto of = [&](const std::function<Array(Array)>& body) {
    return [&, body] { type_in(mesh42(), x, P("j"), body, strict); };
  };
  using A = Array;
  for (const auto& body : std::vector<std::function<Array(Array)>>{
           [](A b) { return psum(b, "i"); }, [](A b) { return pmax(b, "i"); },
           [](A b) {
             return pmin(b, {"j", "i"});
           },
           [](A b) { return pmean(b, "i"); }, [](A b) { return all_gather(b, "i"); },
           [](A b) { return all_gather_invariant(b, "i"); },
           [](A b) { return psum_scatter(b, "i"); }, [](A b) { return all_to_all(b, "i", 0, 0); },
           [](A b) {
             return ppermute(b, "i", {{0, 1}});
           },
           [](A b) { return broadcast_from(b, "i", 0); }}) {
    expect_error<TypeError>(of(body), {"f32[4]{j}", "does not vary over 'i'", "pbroadcast(x, 'i')",
                                       "auto_pbroadcast", "collective_types_test.cpp"});
  }
  EXPECT_EQ(type_in(
                mesh42(), x, P("j"), [](A b) { return psum(pbroadcast(b, "i"), "i"); }, strict),
            "f32[4]{j}");
  expect_error<TypeError>(of([](A b) { return pbroadcast(b, "j"); }), {"varies over 'j' already"});
}

// If variance is not checked, nothing is refused, and inferred types are correct all the same.
TEST(CollectiveTypes, UncheckedNothingIsRefused) {
  for (const bool casts : {true, false}) {
    const ShardMapOptions loose{.check_vma = false, .auto_pbroadcast = casts};
    const Array x = arange(8);
    const auto of = [&](const std::function<Array(Array)>& body) {
      return type_in(mesh42(), x, P("i"), body, loose);
    };
    EXPECT_EQ(of([](Array b) { return psum(psum(b, "i"), "i"); }), "f32[2]");
    EXPECT_EQ(of([](Array b) { return psum(b, {"i", "j"}); }), "f32[2]");
    EXPECT_EQ(of([](Array b) { return all_gather(b, "j"); }), "f32[2,2]{i,j}");
    EXPECT_EQ(of([](Array b) { return pbroadcast(b, "i"); }), "f32[2]{i}");
    EXPECT_EQ(of([](Array b) { return pbroadcast(b, {"i", "j"}); }), "f32[2]{i,j}");
    EXPECT_EQ(of([](Array b) { return ppermute(psum(b, "i"), "i", {{0, 1}}); }), "f32[2]{i}");
    const auto twice = [](Array b) { return psum(psum(b, "i"), "i"); };
    const Array sums = expect_same_under_jit(shard_map(twice, mesh42(), P("i"), P(), loose),
                                             Communication::same, x);
    EXPECT_EQ(sums.to_vector<float>(), std::vector<float>({48, 64}));
    const auto look_at = [&](auto body) { shard_map(body, mesh42(), P("i"), P("i"), loose)(x); };
    look_at([&](Array b) {  // each device takes its own part of its own value
      const Array part = pscatter(all_gather(b, "i", {.tiled = true}), "i", {.tiled = true});
      for (std::uint32_t d : own_positions(part))
        EXPECT_EQ(block_values<float>(part, d), block_values<float>(b, d));
      EXPECT_EQ(to_string(part.type()), "f32[2]{i}");
      return part;
    });
  }
}

TEST(CollectiveTypes, ResultsAreHostReadableWhereInvariant) {
  const auto body = [](Array b) {
    EXPECT_EQ(psum(b, "i").item<float>(), 6.f);
    if (psum(b, "i") < 0) ADD_FAILURE() << "6 < 0";
    if (!(psum(axis_index("i"), "i") > 0)) ADD_FAILURE() << "ranks";
    EXPECT_THROW(all_gather(b, "i").to_vector<float>(), TypeError);
    EXPECT_EQ(all_gather_invariant(b, "i").to_vector<float>(), std::vector<float>({0, 1, 2, 3}));
    EXPECT_EQ(broadcast_from(b, "i", 2).item<float>(), 2.f);
    return b;
  };
  shard_map(body, mesh42(), P("i"), P("i"))(arange(4));
}

}  // namespace
}  // namespace shmap::test
