// The costs of programs on one device: flops, bytes, and each collective.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/compiler/fusion/fuse.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using testing::ElementsAre;

std::vector<std::string> collectives(const CostAnalysis& cost) {
  std::vector<std::string> out;
  for (const CollectiveCost& c : cost.collectives) {
    out.push_back(c.primitive);
    for (const std::string& a : c.axes) out.back() += " " + a;
    out.back() += " " + std::to_string(c.bytes);
  }
  return out;
}

int count(const CostAnalysis& cost, const std::string& primitive) {
  int n = 0;
  for (const CollectiveCost& c : cost.collectives) n += c.primitive == primitive;
  return n;
}

int count_eqns(const Jaxpr& jaxpr, const std::string& primitive) {
  int n = 0;
  for (const Eqn& e : jaxpr.eqns) {
    n += e.primitive->name == primitive;
    for (const Jaxpr* inner : inner_jaxprs(*e.params)) n += count_eqns(*inner, primitive);
  }
  return n;
}

TEST(CostAnalysis, CountsEachValueOnceAndAProductTwice) {
  const auto cost = [](auto f, auto... types) { return cost_analysis(make_jaxpr(f)(types...)); };
  const CostAnalysis elementwise =
      cost([](Array x) { return sin(x) * 2.f; }, ShapedArray({4, 8}, f32));
  EXPECT_EQ(elementwise.flops, 64);
  EXPECT_EQ(elementwise.bytes_accessed, 128 + 128 + 128 + 4 + 128);
  EXPECT_TRUE(elementwise.collectives.empty());

  const CostAnalysis dot = cost([](Array a, Array b) { return matmul(a, b); },
                                ShapedArray({2, 8}, f32), ShapedArray({8, 32}, f32));
  EXPECT_EQ(dot.flops, 2 * 2 * 8 * 32);
  EXPECT_EQ(dot.bytes_accessed, 4 * (16 + 256 + 64));

  EXPECT_EQ(cost([](Array x) { return sum(x, 0); }, ShapedArray({16, 4}, f32)).flops, 64);
  EXPECT_EQ(cost([](Array x) { return cumsum(x, 0); }, ShapedArray({16, 4}, f32)).flops, 64);
  EXPECT_EQ(cost([](Array x) { return argmax(x, 0); }, ShapedArray({16, 4}, f32)).flops, 64);
  // Data that only moves.
  const CostAnalysis moved = cost([](Array x) { return transpose(x); }, ShapedArray({16, 4}, f32));
  EXPECT_EQ(moved.flops, 0);
  EXPECT_EQ(moved.bytes_accessed, 512);
}

TEST(CostAnalysis, FusedEquationsCountWhatIsInThem) {
  const ClosedJaxpr j =
      make_jaxpr([](Array x) { return sum(exp(x) * 2.f + 1.f, 1); })(ShapedArray({16, 64}, f32));
  const ClosedJaxpr k = close_jaxpr(fuse(*j.impl().jaxpr), {});
  ASSERT_EQ(k.impl().jaxpr->eqns.size(), 1u) << k;
  EXPECT_EQ(cost_analysis(k).flops, cost_analysis(j).flops);
  EXPECT_EQ(cost_analysis(k).bytes_accessed, 4 * (16 * 64 + 16));
}

TEST(CostAnalysis, ABodyCountsAsOneDevicesWork) {
  const AbstractMesh mesh({4, 2}, {"i", "j"});
  const auto f = shard_map([](Array a, Array b) { return psum(matmul(a, b), "j"); }, mesh,
                           {P("i", "j"), P("j", none)}, P("i", none));
  const CostAnalysis cost =
      cost_analysis(make_jaxpr(f)(ShapedArray({8, 16}, f32), ShapedArray({16, 32}, f32)));
  EXPECT_EQ(cost.flops, 2 * 2 * 8 * 32);
  EXPECT_THAT(collectives(cost), ElementsAre("psum j 256"));
}

// The typing table of JEP 17111: which collectives move data, and how much of it each device gives.
TEST(CostAnalysis, EveryCollectiveThatMovesDataCounts) {
  const AbstractMesh mesh({8}, "i");
  const auto of = [&](auto body, const PartitionSpec& in, const ShapedArray& type,
                      const PartitionSpec& out = P("i")) {
    return collectives(cost_analysis(make_jaxpr(shard_map(body, mesh, in, out))(type)));
  };
  const ShapedArray v16({128}, f32), v2({16}, f32), whole({16}, f32);
  EXPECT_THAT(of([](Array x) { return psum(x, "i"); }, P("i"), v2, P()), ElementsAre("psum i 8"));
  EXPECT_THAT(of([](Array x) { return pmax(x, "i"); }, P("i"), v2, P()), ElementsAre("pmax i 8"));
  EXPECT_THAT(of([](Array x) { return pmin(x, "i"); }, P("i"), v2, P()), ElementsAre("pmin i 8"));
  EXPECT_THAT(of([](Array x) { return all_gather(x, "i", {.tiled = true}); }, P("i"), v2),
              ElementsAre("all_gather i 8"));
  EXPECT_THAT(
      of([](Array x) { return all_gather_invariant(x, "i", {.tiled = true}); }, P("i"), v2, P()),
      ElementsAre("all_gather_invariant i 8"));
  EXPECT_THAT(of([](Array x) { return psum_scatter(x, "i", {.tiled = true}); }, P("i"), v16),
              ElementsAre("psum_scatter i 64"));
  EXPECT_THAT(of([](Array x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); }, P("i"), v16),
              ElementsAre("all_to_all i 64"));
  EXPECT_THAT(of(
                  [](Array x) {
                    return ppermute(x, "i", {{0, 1}});
                  },
                  P("i"), v2),
              ElementsAre("ppermute i 8"));
  EXPECT_THAT(of([](Array x) { return broadcast_from(x, "i", 3); }, P("i"), v2, P()),
              ElementsAre("broadcast_from i 8"));
  // Casts, pieces of what every device has, and indices.
  EXPECT_THAT(of([](Array x) { return pbroadcast(x, "i"); }, P(), whole), ElementsAre());
  EXPECT_THAT(of([](Array x) { return pscatter(x, "i", {.tiled = true}); }, P(), whole),
              ElementsAre());
  EXPECT_THAT(of([](Array x) { return x + axis_index("i"); }, P("i"), ShapedArray({16}, i32)),
              ElementsAre());
}

TEST(CostAnalysis, CollectivesComeInProgramOrder) {
  const AbstractMesh mesh({4, 2}, {"i", "j"});
  const auto f = shard_map(
      [](Array x) {
        const Array a = psum(x, axes("j", "i"));
        const Array b = all_gather(x, "j");
        return psum(b, axes("i", "j")) + a;
      },
      mesh, P("i", "j"), P());
  const ClosedJaxpr j = make_jaxpr([&](Array x) { return f(sin(x)); })(ShapedArray({8, 4}, f32));
  EXPECT_THAT(collectives(cost_analysis(j)),
              ElementsAre("psum j i 16", "all_gather j 16", "psum i j 32"));
}

TEST(CostAnalysis, ACollectiveMatmulSendsAllButOneOfItsBlocks) {
  const AbstractMesh mesh({8}, "i");
  const auto f = shard_map(
      [](Array lhs, Array rhs) {
        const int n = axis_size("i");
        std::vector<std::pair<int, int>> left;
        for (int d = 0; d < n; ++d) left.emplace_back(d, (d + n - 1) % n);
        const auto rows = lhs.shape()[0];
        const Array me = axis_index("i");
        Array out = zeros({rows * n, rhs.shape()[1]});
        for (int step = 0; step < n; ++step) {
          const Array update = matmul(lhs, rhs);
          if (step + 1 < n) lhs = ppermute(lhs, "i", left);
          out = dynamic_update_slice(out, update, {(me + step) % n * int(rows), 0});
        }
        return out;
      },
      mesh, {P("i", none), P()}, P(), {.check_vma = false});
  const ClosedJaxpr j = make_jaxpr(f)(ShapedArray({64, 32}, f32), ShapedArray({32, 16}, f32));
  const CostAnalysis cost = cost_analysis(j);
  EXPECT_EQ(count(cost, "ppermute"), 7);
  EXPECT_EQ(cost.collectives.size(), 7u);
  EXPECT_EQ(cost.collectives[0].bytes, 8 * 32 * 4);
  EXPECT_EQ(count_eqns(*j.impl().jaxpr, "dot_general"), 8);
  EXPECT_EQ(count_eqns(*j.impl().jaxpr, "all_gather"), 0);
  EXPECT_GE(cost.flops, 8 * 2 * 8 * 32 * 16);
}

TEST(CostAnalysis, LoopsCountAsOftenAsTheyRun) {
  const AbstractMesh mesh({8}, "i");
  const auto f = shard_map(
      [](Array x) {
        return fori_loop(
            0, 5,
            [](Array, Array c) {
              return sin(ppermute(c, "i", {{0, 1}}));
            },
            x);
      },
      mesh, P("i"), P("i"));
  const CostAnalysis cost = cost_analysis(make_jaxpr(f)(ShapedArray({16}, f32)));
  EXPECT_EQ(count(cost, "ppermute"), 5);
  EXPECT_GE(cost.flops, 5 * 2);
  EXPECT_LE(cost.flops, 5 * 3);  // the index may be counted up
}

TEST(CostAnalysis, OfBranchesTheCostliestCounts) {
  const ClosedJaxpr j = make_jaxpr([](Array p, Array a) {
    return cond(
        p, [](Array x) { return matmul(x, x); }, [](Array x) { return x + x; }, a);
  })(ShapedArray({}, bool_), ShapedArray({16, 16}, f32));
  EXPECT_EQ(cost_analysis(j).flops, 2 * 16 * 16 * 16);
}

TEST(CostAnalysis, TheLossOfDataParallelismNeedsOneScalar) {
  const AbstractMesh mesh({8}, "batch");
  const auto loss =
      shard_map([](Array w, Array x) { return pmean(mean(square(matmul(x, w))), "batch"); }, mesh,
                {P(none, none), P("batch", none)}, P());
  const CostAnalysis cost =
      cost_analysis(make_jaxpr(loss)(ShapedArray({16, 4}, f32), ShapedArray({32, 16}, f32)));
  EXPECT_THAT(collectives(cost), ElementsAre("psum batch 4"));
}

// The collectives that jit adds for split arrays are counted on blocks, as in its plan.
TEST(CostAnalysis, OfSplitArraysCountsTheCollectivesOfThePlan) {
  const Mesh mesh = make_mesh({8}, {"i"});
  const Array a = device_put(ones({8, 8}), NamedSharding(mesh, P(none, "i")));
  const Array b = device_put(ones({8, 8}), NamedSharding(mesh, P("i")));
  const auto product = [](Array x, Array y) { return matmul(x, y); };
  const CostAnalysis cost = cost_analysis(make_jaxpr(product)(a, b));
  EXPECT_THAT(collectives(cost), ElementsAre("psum i 256"));
  EXPECT_EQ(cost.flops, 2 * 8 * 1 * 8);  // of one device
  EXPECT_THAT(collectives(cost_analysis(make_jaxpr(jit(product))(a, b))),
              ElementsAre("psum i 256"));
  // The same types, not split.
  EXPECT_TRUE(cost_analysis(make_jaxpr(product)(ones({8, 8}), ones({8, 8}))).collectives.empty());
  // A constraint says where values go, whatever the arguments are.
  const auto gathered = [&](Array x) {
    return with_sharding_constraint(with_sharding_constraint(x, NamedSharding(mesh, P("i"))) * 2.f,
                                    NamedSharding(mesh, P()));
  };
  EXPECT_THAT(collectives(cost_analysis(make_jaxpr(gathered)(ShapedArray({8, 8}, f32)))),
              ElementsAre("all_gather_invariant i 32"));
}

}  // namespace
}  // namespace shmap
