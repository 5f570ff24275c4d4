// Predicted timelines compared with times computed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/temp_folder.h"

namespace shmap::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// One level of n devices: 2 us and 100 bytes per us; 1000 flops and 50 bytes of memory per us.
Topology ring(int n) {
  return {.levels = {{n, {2, 100}}}, .flops_per_us = 1000, .memory_bytes_per_us = 50};
}
// Computation takes almost no time, so that the links decide.
Topology of(std::vector<Topology::Level> levels) {
  return {.levels = std::move(levels), .flops_per_us = 1e12, .memory_bytes_per_us = 1e12};
}

// The schedule of a body over an axis "i" of n devices, for blocks of that many f32.
template <class F>
Schedule body(F f, int n, std::int64_t floats, const Topology& topology) {
  const AbstractMesh mesh({n}, "i");
  return simulate(make_jaxpr(shard_map(f, mesh, P("i"), P("i")))(ShapedArray({n * floats}, f32)),
                  topology);
}

TEST(Simulate, ComputationTakesTheLongerOfArithmeticAndMemory) {
  const auto product = [](Array a, Array b) { return matmul(a, b); };
  // 2 · 16 · 16 · 16 flops at 1000 a us; 3 · 1024 bytes at 50 a us.
  const Schedule s = simulate(
      make_jaxpr(product)(ShapedArray({16, 16}, f32), ShapedArray({16, 16}, f32)), ring(1));
  EXPECT_DOUBLE_EQ(s.us, 3 * 1024 / 50.0);
  Topology slow = ring(1);
  slow.flops_per_us = 10;
  const Schedule t =
      simulate(make_jaxpr(product)(ShapedArray({16, 16}, f32), ShapedArray({16, 16}, f32)), slow);
  EXPECT_DOUBLE_EQ(t.us, 2 * 16 * 16 * 16 / 10.0);
  EXPECT_EQ(t.exposed_communication_us, 0);
  EXPECT_THAT(t.assumptions, IsEmpty());
}

TEST(Simulate, ViewsAreFreeAndAChainIsOneOperation) {
  const auto view = [](Array x) { return reshape(x, {64}); };
  EXPECT_EQ(simulate(make_jaxpr(view)(ShapedArray({8, 8}, f32)), ring(1)).us, 0);
  const auto chain = [](Array x) { return x * 2.f + 1.f; };
  EXPECT_DOUBLE_EQ(simulate(make_jaxpr(chain)(ShapedArray({100}, f32)), ring(1)).us, 800 / 50.0);
}

TEST(Simulate, CollectivesOverOneLevel) {
  const Topology fast = of({{8, {2, 100}}});
  const double b = 40000;  // bytes of a block
  const auto us = [&](auto f) { return body(f, 8, 10000, fast).us; };
  // Ring: 2 (n - 1) messages of an n-th of the whole.
  EXPECT_DOUBLE_EQ(us([](Array x) { return pbroadcast(psum(x, "i"), "i"); }),
                   2 * 7 * (2 + b / 8 / 100));
  EXPECT_DOUBLE_EQ(us([](Array x) { return psum_scatter(x, "i", {.tiled = true}); }),
                   7 * (2 + b / 8 / 100));
  EXPECT_DOUBLE_EQ(us([](Array x) { return all_gather(x, "i", {.tiled = true}); }),
                   7 * (2 + b / 100));
  EXPECT_DOUBLE_EQ(us([](Array x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); }),
                   7 * (2 + b / 8 / 100));
  EXPECT_DOUBLE_EQ(us([](Array x) { return ppermute(x, "i", {{0, 1}, {1, 0}}); }), 2 + b / 100);
  // A message so short that a tree of 3 rounds up and 3 down takes less.
  const Schedule tree = body([](Array x) { return pbroadcast(psum(x, "i"), "i"); }, 8, 1, fast);
  EXPECT_DOUBLE_EQ(tree.us, 2 * 3 * 2 + 2 * 4 / 100.0);
  EXPECT_DOUBLE_EQ(tree.exposed_communication_us, tree.us);
  // Groups of two.
  EXPECT_DOUBLE_EQ(us([](Array x) {
                     return psum(x, "i", {.axis_index_groups = {{0, 1}, {2, 3}, {4, 5}, {6, 7}}});
                   }),
                   2 * (2 + b / 2 / 100));
}

TEST(Simulate, TwoLevels) {
  // 4 nodes of 2 devices: 1 us and 1000 bytes a us inside, 10 us and 100 bytes a us between.
  const Topology nodes = of({{2, {1, 1000}}, {4, {10, 100}}});
  const double b = 80000;
  const auto us = [&](auto f) { return body(f, 8, 20000, nodes).us; };
  // Each device takes an n-th inside its node, then rings between nodes move that, and back.
  EXPECT_DOUBLE_EQ(us([](Array x) { return pbroadcast(psum(x, "i"), "i"); }),
                   2 * ((1 + b / 2 / 1000) + 3 * (10 + b / 2 / 4 / 100)));
  EXPECT_DOUBLE_EQ(us([](Array x) { return all_gather(x, "i", {.tiled = true}); }),
                   (1 + 8 * b / 2 / 1000) + 3 * (10 + 8 * b / 2 / 4 / 100));
  // A neighbour in the same node, and one in another node.
  EXPECT_DOUBLE_EQ(us([](Array x) { return ppermute(x, "i", {{0, 1}, {6, 7}}); }), 1 + b / 1000);
  EXPECT_DOUBLE_EQ(us([](Array x) { return ppermute(x, "i", {{0, 1}, {1, 2}}); }), 10 + b / 100);
  // One piece goes inside the node, 6 pieces to devices of other nodes.
  EXPECT_DOUBLE_EQ(us([](Array x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); }),
                   (1 + b / 8 / 1000) + 6 * (10 + b / 8 / 100));

  // Axes of a mesh: the last one is inside of the nodes.
  const AbstractMesh mesh({4, 2}, {"between", "inside"});
  const auto over = [&](const char* axis) {
    const auto f = [axis](Array x) { return pbroadcast(psum(x, axis), axis); };
    return simulate(
               make_jaxpr(shard_map(f, mesh, P(axes("between", "inside")),
                                    P(axes("between", "inside"))))(ShapedArray({8 * 20000}, f32)),
               nodes)
        .us;
  };
  EXPECT_DOUBLE_EQ(over("inside"), 2 * (1 + b / 2 / 1000));
  EXPECT_DOUBLE_EQ(over("between"), 2 * 3 * (10 + b / 4 / 100));
}

TEST(Simulate, CommunicationIsHiddenByComputationThatDoesNotWaitForIt) {
  const AbstractMesh mesh({4}, "i");
  // A ring that takes 2 · 3 · (2 + 1024 / 4 / 100) = 27.36 us, beside a product of 61.44 us.
  const auto f = [&](bool waits) {
    return shard_map(
        [waits](Array a, Array b) {
          const Array sum = pbroadcast(psum(a, "i"), "i");
          return matmul(b, waits ? sum : b) + sum;
        },
        mesh, P("i"), P("i"));
  };
  const ShapedArray x({64, 16}, f32);
  const double ring_us = 2 * 3 * (2 + 1024 / 4 / 100.0), last = 3 * 1024 / 50.0;
  const Schedule hidden = simulate(make_jaxpr(f(false))(x, x), ring(4));
  EXPECT_NEAR(hidden.us, 2 * last, 1e-9);
  EXPECT_EQ(hidden.exposed_communication_us, 0);
  const Schedule exposed = simulate(make_jaxpr(f(true))(x, x), ring(4));
  EXPECT_NEAR(exposed.us, ring_us + 2 * last, 1e-9);
  EXPECT_NEAR(exposed.exposed_communication_us, ring_us, 1e-9);
}

TEST(Simulate, GlobalProgramsAreSplitFirst) {
  const AbstractMesh mesh({8}, "i");
  const auto f = [](Array x, Array w) { return matmul(x, w); };
  const ShapedArray x({16, 64}, f32), w({64, 32}, f32);
  // Rows: no communication. 2 rows, all of w, 2 rows of the result.
  const Schedule rows = simulate(make_jaxpr(jit(f, mesh, {P("i"), P()}, P("i")))(x, w), ring(8));
  EXPECT_DOUBLE_EQ(rows.us, 4 * (2 * 64 + 64 * 32 + 2 * 32) / 50.0);
  EXPECT_EQ(rows.exposed_communication_us, 0);
  EXPECT_EQ(rows.peak_bytes, 4 * (2 * 64 + 64 * 32 + 2 * 32));
  // Contracted: a part of the sum on each device, then a tree sums 16 · 32 floats.
  const Schedule sums =
      simulate(make_jaxpr(jit(f, mesh, {P(none, "i"), P("i")}, P()))(x, w), ring(8));
  EXPECT_DOUBLE_EQ(sums.exposed_communication_us, 2 * 3 * 2 + 2 * 4 * 16 * 32 / 100.0);
  EXPECT_DOUBLE_EQ(sums.us, 4 * (16 * 8 + 8 * 32 + 16 * 32) / 50.0 + sums.exposed_communication_us);
  EXPECT_EQ(sums.peak_bytes, 4 * (16 * 8 + 8 * 32 + 2 * 16 * 32));
  // The same as the per-device program that says so itself.
  const auto mapped = shard_map([](Array a, Array b) { return psum(matmul(a, b), "i"); }, mesh,
                                {P(none, "i"), P("i")}, P());
  EXPECT_EQ(simulate(make_jaxpr(mapped)(x, w), ring(8)).us, sums.us);
  EXPECT_EQ(simulate(make_jaxpr(mapped)(x, w), ring(8)).peak_bytes, sums.peak_bytes);
}

TEST(Simulate, DerivativesAndBatchesOfProgramsOnAbstractMeshes) {
  const AbstractMesh mesh({8}, "i");
  const auto f = jit([](Array p, Array x) { return sum(matmul(x, p)); }, mesh, {P(), P("i")}, P());
  const ShapedArray p({64, 8}, f32), x({16, 64}, f32);
  // The sum of the loss is dead; that of the gradient stays, of 64 · 8 floats.
  const Schedule g = simulate(make_jaxpr(grad(f))(p, x), ring(8));
  EXPECT_DOUBLE_EQ(g.exposed_communication_us, 2 * 3 * 2 + 2 * 4 * 64 * 8 / 100.0);
  const auto rows = jit([](Array v, Array w) { return matmul(v, w); }, mesh, {P("i"), P("i")}, P());
  const Schedule many = simulate(make_jaxpr(vmap(rows, {0, none}))(x, p), ring(8));
  EXPECT_DOUBLE_EQ(many.exposed_communication_us, 2 * 3 * 2 + 2 * 4 * 16 * 8 / 100.0);
}

TEST(Simulate, PeakBytesByLifetimes) {
  // x, then two products that are alive at once, then the sum; w alone is an argument of 1024
  // bytes.
  const auto f = [](Array w) {
    const Array a = matmul(w, w);
    const Array b = matmul(a, w);
    return matmul(a, b);
  };
  EXPECT_EQ(simulate(make_jaxpr(f)(ShapedArray({16, 16}, f32)), ring(1)).peak_bytes, 4 * 1024);
  // A chain of products holds two at a time, beside the argument.
  const auto chain = [](Array w) {
    Array x = w;
    for (int k = 0; k < 10; ++k) x = matmul(x, w);
    return x;
  };
  EXPECT_EQ(simulate(make_jaxpr(chain)(ShapedArray({16, 16}, f32)), ring(1)).peak_bytes, 3 * 1024);
  // An elementwise result takes the bytes of its operand, which nobody else uses.
  const auto in_place = [](Array w) { return tanh(matmul(w, w)); };
  EXPECT_EQ(simulate(make_jaxpr(in_place)(ShapedArray({16, 16}, f32)), ring(1)).peak_bytes,
            2 * 1024);
  const auto view = [](Array w) { return reshape(matmul(w, w), {256}); };
  EXPECT_EQ(simulate(make_jaxpr(view)(ShapedArray({16, 16}, f32)), ring(1)).peak_bytes, 2 * 1024);
}

TEST(Simulate, LoopsRunTheirTripsAndLongOnesAreNotSimulatedTripByTrip) {
  const auto loop = [](int trips) {
    return make_jaxpr([trips](Array x) {
      return fori_loop(
          0, trips, [](Array, Array c) { return matmul(c, c); }, x);
    })(ShapedArray({16, 16}, f32));
  };
  const double trip = 3 * 1024 / 50.0;
  const double counter = simulate(loop(1), ring(1)).us - trip;  // the loop's own number
  EXPECT_GE(counter, 0);
  EXPECT_LT(counter, 1);
  EXPECT_NEAR(simulate(loop(3), ring(1)).us, 3 * (trip + counter), 1e-6);
  const Schedule many = simulate(loop(1000000), ring(1));
  EXPECT_NEAR(many.us, 1e6 * (trip + counter), 1e-3);
  EXPECT_THAT(many.assumptions, IsEmpty());
  // The carry, its next value, and the result.
  EXPECT_GE(many.peak_bytes, 3 * 1024);
  EXPECT_LE(many.peak_bytes, 3 * 1024 + 16);
}

TEST(Simulate, CommunicationOfLongLoops) {
  const AbstractMesh mesh({4}, "i");
  const auto loop = [&](int trips) {
    const auto f = [trips](Array x) {
      return fori_loop(
          0, trips, [](Array, Array c) { return pbroadcast(psum(matmul(c, c), "i"), "i"); }, x);
    };
    return simulate(make_jaxpr(shard_map(f, mesh, P("i"), P("i")))(ShapedArray({64, 16}, f32)),
                    ring(4));
  };
  const double ring_us = 2 * 3 * (2 + 1024 / 4 / 100.0);
  EXPECT_NEAR(loop(2).exposed_communication_us, 2 * ring_us, 0.5);
  EXPECT_NEAR(loop(1000).exposed_communication_us / 1000, loop(10).exposed_communication_us / 10,
              0.1);
  EXPECT_NEAR(loop(1000).us / 1000, loop(10).us / 10, 0.1);
}

TEST(Simulate, SaysWhatIsAssumed) {
  const auto f = [](Array x) {
    const Array y =
        while_loop([](Array c) { return sum(c) < 3.f; }, [](Array c) { return c + 1.f; }, x);
    return cond(
        sum(y) > 0.f, [](Array a) { return a; }, [](Array a) { return matmul(a, a); }, y);
  };
  const Schedule s = simulate(make_jaxpr(f)(ShapedArray({16, 16}, f32)), ring(1));
  EXPECT_THAT(s.assumptions, ElementsAre(HasSubstr("while: nobody knows how many trips"),
                                         HasSubstr("cond: the branch that takes longest")));
  // The product is in the branch that a false predicate takes.
  EXPECT_THAT(s.assumptions[1], HasSubstr("branch 0 of 2"));
  EXPECT_GE(s.us, 3 * 1024 / 50.0);
}

TEST(Simulate, TheSameProgramHasTheSameTimeline) {
  const AbstractMesh mesh({2048, 8}, {"data", "model"});
  const auto f = [](Array x, Array v, Array w) {
    for (int l = 0; l < 10; ++l) x = matmul(relu(matmul(x, v)), w) + x;
    return x;
  };
  const auto run = [&] {
    const TempFolder folder("simulate");
    simulate(make_jaxpr(jit(f, mesh, {P("data"), P(none, "model"), P("model")}, P("data")))(
                 ShapedArray({16384, 64}, f32), ShapedArray({64, 128}, f32),
                 ShapedArray({128, 64}, f32)),
             of({{8, {3, 4e5}}, {2048, {10, 45000}}}))
        .save(folder / "trace.json");
    std::stringstream text;
    text << std::ifstream(folder / "trace.json").rdbuf();
    return text.str();
  };
  const std::string first = run();
  EXPECT_EQ(run(), first);
  EXPECT_THAT(first, HasSubstr(R"("name":"psum")"));
  EXPECT_THAT(first, HasSubstr(R"("args":{"name":"communication"})"));
}

TEST(Simulate, Errors) {
  const AbstractMesh mesh({4, 6}, {"i", "j"});
  const ClosedJaxpr jaxpr = make_jaxpr(
      jit([](Array x) { return x + 1.f; }, mesh, {P(axes("i", "j"))}))(ShapedArray({48}, f32));
  const Link link{1, 100};
  const auto fails = [&](const Topology& topology, std::initializer_list<const char*> fragments) {
    expect_error<ValueError>([&] { simulate(jaxpr, topology); }, fragments);
  };
  fails(of({{2, link}, {4, link}}),
        {"simulate", "8 devices (2 x 4)", "'i': 4, 'j': 6", "24", "add a level"});
  fails(of({}), {"no levels", "24"});
  fails(of({{4, link}, {8, link}}), {"the mesh axis 'j' of size 6", "4 x 8", "do", "divide"});
  EXPECT_GE(simulate(jaxpr, of({{6, link}, {4, link}})).us, 0);
  EXPECT_GE(simulate(jaxpr, of({{2, link}, {100, link}})).us, 0);
  fails({.levels = {{24, link}}, .flops_per_us = 0, .memory_bytes_per_us = 1},
        {"Topology::flops_per_us is 0", "positive"});
  fails({.levels = {{24, link}}, .flops_per_us = 1, .memory_bytes_per_us = -2},
        {"Topology::memory_bytes_per_us is -2"});
  fails(of({{24, {1, 0}}}), {"Topology::levels[0].link.bytes_per_us is 0"});
  fails(of({{24, {-1, 5}}}), {"Topology::levels[0].link.latency_us is -1"});
  fails(of({{24, {std::numeric_limits<double>::infinity(), 5}}}), {"latency_us"});
  fails(of({{0, link}}), {"Topology::levels[0].size is 0"});
  const Schedule s = simulate(jaxpr, of({{24, link}}));
  expect_error<Error>([&] { s.save("/nowhere/at/all/trace.json"); },
                      {"Schedule::save", "/nowhere/at/all/trace.json", "No such file"});
  expect_error<Error>([&] { Schedule().save("x.json"); }, {"no timeline"});
}

}  // namespace
}  // namespace shmap::test
