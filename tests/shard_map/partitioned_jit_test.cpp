// shmap-test: devices
// jit over a mesh: functions of whole arrays whose programs are split over devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/communication.h"
#include "tests/support/error_text.h"

namespace shmap::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Mesh mesh8() { return make_mesh({8}, {"i"}); }
Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }
Array numbers(Shape shape) { return reshape(arange(shape.num_elements()), shape); }
std::vector<float> values(const Array& x) { return x.to_vector<float>(); }
std::string lies(const Array& x) { return to_string(x.sharding()); }
std::string on(const Mesh& mesh, const P& spec) { return to_string(NamedSharding(mesh, spec)); }

Array product(Array x, Array w) { return matmul(x, w); }

TEST(PartitionedJit, PutsItsArgumentsAndLaysOutItsResults) {
  const Mesh mesh = mesh42();
  const Array x = numbers({16, 8}), w = numbers({8, 4});
  const std::vector<float> want = values(matmul(x, w));
  const auto rows = jit(product, mesh, {P("i", none), P()}, P("i", none));
  for (int call = 0; call < 3; ++call) {
    const Array y = rows(x, w);
    EXPECT_EQ(values(y), want);
    EXPECT_EQ(lies(y), on(mesh, P("i")));
  }
  // A result whose spec is left out stays as its program leaves it.
  const Array kept = jit(product, mesh, {P("i", none), P(none, "j")})(x, w);
  EXPECT_EQ(values(kept), want);
  EXPECT_EQ(lies(kept), on(mesh, P("i", "j")));
  const Array turned = jit(product, mesh, {P("i", none), P()}, P(none, "i"))(x, w);
  EXPECT_EQ(values(turned), want);
  EXPECT_EQ(lies(turned), on(mesh, P(none, "i")));
}

TEST(PartitionedJit, TheProgramHasTheCollectivesThatTheSpecsTake) {
  const Mesh mesh = mesh8();
  const ShapedArray x({16, 8}, f32), w({8, 4}, f32);
  const auto in = [&](Specs in_specs, Specs out_specs) {
    return collectives_in(make_jaxpr(jit(product, mesh, in_specs, out_specs))(x, w));
  };
  EXPECT_THAT(in({P("i", none), P()}, P("i", none)), IsEmpty());
  EXPECT_THAT(in({P("i", none), P()}, P()), ElementsAre("all_gather_invariant(i) 32"));
  // Contracted: each device has a part of every sum.
  EXPECT_THAT(in({P(none, "i"), P("i", none)}, P()), ElementsAre("psum(i) 256"));
  // Columns instead of rows: each device sends what it has of the others' columns.
  EXPECT_THAT(collectives_in(make_jaxpr(jit(product, mesh, {P("i"), P()}, P(none, "i")))(
                  x, ShapedArray({8, 16}, f32))),
              ElementsAre("all_to_all(i) 128"));
}

TEST(PartitionedJit, ASumOfWhichEachDeviceKeepsAPartIsScattered) {
  const Mesh mesh = mesh8();
  const Array x = random::normal(random::key(1), {16, 64}),
              w = random::normal(random::key(2), {64, 8});
  const auto parts = jit(product, mesh, {P(none, "i"), P("i")}, P("i"));
  EXPECT_THAT(collectives_in(make_jaxpr(parts)(x, w)), ElementsAre("psum_scatter(i) 512"));
  // The same bits as of the whole sum.
  const Array whole = jit(product, mesh, {P(none, "i"), P("i")}, P())(x, w);
  EXPECT_EQ(values(parts(x, w)), values(whole));
  EXPECT_EQ(lies(parts(x, w)), on(mesh, P("i")));
  // A training step with split parameters and a split batch: parameters are gathered, gradients are
  // scattered.
  const auto loss = [](Array p, Array batch) { return mean(square(tanh(matmul(batch, p)))); };
  const auto step = [&](Array p, Array batch) { return p - grad(loss)(p, batch) * 0.1f; };
  const auto split = jit(step, mesh, {P("i"), P("i")}, P("i"));
  const std::vector<std::string> moved = collectives_in(make_jaxpr(split)(w, x));
  EXPECT_THAT(moved, ElementsAre("all_gather_invariant(i) 256", "psum_scatter(i) 2048"));
  EXPECT_EQ(values(split(w, x)).size(), 512u);
  const Array want = step(w, x), got = split(w, x);
  for (std::size_t k = 0; k < 512; ++k) EXPECT_NEAR(values(got)[k], values(want)[k], 1e-6f);
  // Turned round on the way.
  const auto turned = [](Array a, Array b) { return -transpose(matmul(a, b)) / 2.f; };
  const auto columns = jit(turned, mesh, {P(none, "i"), P("i")}, P("i"));
  EXPECT_THAT(collectives_in(make_jaxpr(columns)(x, w)), ElementsAre("psum_scatter(i) 512"));
  EXPECT_EQ(values(columns(x, w)), values(jit(turned, mesh, {P(none, "i"), P("i")}, P())(x, w)));
  // A whole sum that something else reads too stays whole.
  const auto both = [&](Array a, Array b) {
    const Array y = matmul(a, b);
    return std::pair{y, y};
  };
  EXPECT_THAT(
      collectives_in(make_jaxpr(jit(both, mesh, {P(none, "i"), P("i")}, {P("i"), P()}))(x, w)),
      ElementsAre("psum(i) 512"));
}

TEST(PartitionedJit, CountsOfCallsAgreeWithTheProgram) {
  const Mesh mesh = mesh8();
  const Array x = device_put(numbers({16, 8}), NamedSharding(mesh, P(none, "i")));
  const Array w = device_put(numbers({8, 4}), NamedSharding(mesh, P("i")));
  const auto f = jit(product, mesh, {P(none, "i"), P("i")}, P());
  for (int call = 0; call < 3; ++call) {
    reset_counters();
    f(x, w);
    EXPECT_EQ(counters().collectives, 1) << call;
    EXPECT_EQ(counters().collective_bytes, 8 * 16 * 4 * 4) << call;
  }
}

TEST(PartitionedJit, AnArgumentThatLiesOtherwiseIsMoved) {
  const Mesh mesh = mesh8();
  const auto f = jit([](Array x) { return x * 2.f; }, mesh, {P("i")}, P("i"));
  const Array x = numbers({8, 8});
  const std::vector<float> want = values(x * 2.f);
  EXPECT_EQ(values(f(device_put(x, NamedSharding(mesh, P(none, "i"))))), want);
  EXPECT_EQ(values(f(device_put(x, NamedSharding(mesh, P())))), want);
  EXPECT_EQ(values(f(device_put(x, devices()[3]))), want);
  // The same devices with other axes.
  EXPECT_EQ(values(f(device_put(x, NamedSharding(mesh42(), P("j", "i"))))), want);
  // An array that is placed as its spec says is not moved.
  const Array there = device_put(x, NamedSharding(mesh, P("i")));
  f(there);
  reset_counters();
  f(there);
  EXPECT_EQ(counters().copied_bytes, 0);
  EXPECT_EQ(counters().collectives, 0);
}

TEST(PartitionedJit, InSpecsThatAreLeftOutAreChosen) {
  const Mesh mesh = mesh8();
  const Array x = numbers({16, 8}), w = numbers({8, 4});
  const std::vector<float> want = values(matmul(x, w));
  const auto f = jit(product, mesh);
  // Arguments that lie on the mesh stay as they lie.
  const Array rows = f(device_put(x, NamedSharding(mesh, P("i"))), w);
  EXPECT_EQ(values(rows), want);
  EXPECT_EQ(lies(rows), on(mesh, P("i")));
  // No spec or constraint is given: each device has a copy.
  const Array copies = f(x, w);
  EXPECT_EQ(values(copies), want);
  EXPECT_EQ(lies(copies), on(mesh, P()));
  // A constraint in the function decides the split of its operands too: each device then computes
  // with its rows alone, and nothing is communicated.
  const auto said = [&](Array a, Array b) {
    return with_sharding_constraint(tanh(matmul(a + 1.f, b)), NamedSharding(mesh, P("i")));
  };
  const auto g = jit(said, mesh);
  EXPECT_EQ(values(g(x, w)), values(said(x, w)));
  EXPECT_THAT(g.plan_text(), HasSubstr("f32[2,8]"));
  EXPECT_THAT(g.plan_text(), testing::Not(HasSubstr("pscatter")));
  // Whole arrays of another mesh of the same devices are taken too.
  EXPECT_EQ(values(f(device_put(x, NamedSharding(mesh42(), P("i"))), w)), want);
}

struct Layer {
  Array w, b;
  int kind = 0;
};

TEST(PartitionedJit, TreesOfArgumentsAndResultsWithPrefixesOfSpecs) {
  const Mesh mesh = mesh42();
  const auto f = [](Layer layer, std::map<std::string, Array> batch) {
    const Array y = matmul(batch.at("x"), layer.w) + layer.b;
    return std::pair{y, std::tuple{sum(y), layer}};
  };
  const Layer layer{numbers({8, 4}), numbers({4}), 7};
  const std::map<std::string, Array> batch{{"x", numbers({16, 8})}};
  const auto g = jit(f, mesh, {{P(none, "j"), P("j")}, {{"x", P("i")}}}, {P("i", "j"), P()});
  const auto [y, rest] = g(layer, batch);
  const auto [want, want_rest] = f(layer, batch);
  EXPECT_EQ(values(y), values(want));
  EXPECT_EQ(lies(y), on(mesh, P("i", "j")));
  EXPECT_EQ(std::get<0>(rest).item<float>(), std::get<0>(want_rest).item<float>());
  EXPECT_EQ(std::get<1>(rest).kind, 7);
  EXPECT_EQ(lies(std::get<1>(rest).w), on(mesh, P()));
  EXPECT_EQ(values(std::get<1>(rest).w), values(layer.w));
}

TEST(PartitionedJit, NoArgumentsNoResultsAndHostNumbers) {
  const Mesh mesh = mesh8();
  const Array made = jit([] { return iota(f32, 16) + zeros({16}); }, mesh, {}, P("i"))();
  EXPECT_EQ(values(made), values(arange(16)));
  EXPECT_EQ(lies(made), on(mesh, P("i")));
  const Array scaled =
      jit([](Array x, Array s) { return x * s; }, mesh, {P("i"), P()}, P("i"))(numbers({8}), 3.f);
  EXPECT_EQ(values(scaled), values(numbers({8}) * 3.f));
  EXPECT_EQ(jit([](Array x) { return std::pair{x, 2.f}; }, mesh, P("i"))(numbers({8})).second, 2.f);
}

TEST(PartitionedJit, TransformsOfIt) {
  const Mesh mesh = mesh8();
  const Array x = numbers({16, 8}) / 64.f, w = numbers({8, 4}) / 16.f;
  const auto loss = [](Array a, Array b) { return sum(square(tanh(matmul(a, b)))); };
  const auto split = jit(loss, mesh, {P("i"), P()}, P());
  const auto near = [](const Array& a, const Array& b) {
    const std::vector<float> x = values(a), y = values(b);
    ASSERT_EQ(x.size(), y.size());
    for (std::size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(x[k], y[k], 1e-5f);
  };
  near(grad(split, 1)(x, w), grad(loss, 1)(x, w));
  near(jit(grad(split, 1))(x, w), grad(loss, 1)(x, w));
  near(jit(grad(loss, 1), mesh, {P("i"), P()}, P())(x, w), grad(loss, 1)(x, w));
  const auto [y, y_dot] = jvp(split, std::tuple{x, w}, std::tuple{x, w});
  const auto [want, want_dot] = jvp(loss, std::tuple{x, w}, std::tuple{x, w});
  near(y, want);
  near(y_dot, want_dot);
  const auto one = jit([](Array v, Array m) { return matmul(v, m); }, mesh, {P("i"), P("i")}, P());
  near(vmap(one, {0, none})(x, w), matmul(x, w));
  near(jit(vmap(one, {0, none}))(x, w), matmul(x, w));
  // The same inside of another program.
  near(jit([&](Array a, Array b) { return split(a, b) * 2.f; })(x, w), loss(x, w) * 2.f);
  // The gradient over split rows sums over devices once.
  const ClosedJaxpr g =
      make_jaxpr(jit(grad(loss, 1), mesh, {P("i"), P()}, P()))(x.type(), w.type());
  EXPECT_THAT(collectives_in(g), ElementsAre("psum(i) 128"));
}

TEST(PartitionedJit, AMappedFunctionIsAPartOfItsProgram) {
  const Mesh mesh = mesh8();
  const auto mapped = shard_map([](Array b) { return psum(sum(b, 0), "i"); }, mesh, P("i"), P());
  const auto f = [&](Array x) { return mapped(x * 2.f) + 1.f; };
  const Array x = numbers({16, 4});
  EXPECT_EQ(values(jit(f, mesh, {P("i")}, P())(x)), values(sum(x * 2.f, 0) + 1.f));
  // Left out, the argument's spec is the one that the mapped function has.
  const auto direct = jit([&](Array y) { return mapped(y); }, mesh);
  EXPECT_EQ(values(direct(x)), values(sum(x, 0)));
  EXPECT_THAT(direct.plan_text(), testing::Not(HasSubstr("pscatter")));
}

TEST(PartitionedJit, LoopsAndBranches) {
  const Mesh mesh = mesh8();
  const auto f = [](Array x, Array w) {
    const Array y = fori_loop(
        0, 3, [&](Array, Array c) { return tanh(matmul(c, w)); }, x);
    return cond(
        sum(y) > 0.f, [](Array a) { return a * 2.f; }, [](Array a) { return -a; }, y);
  };
  const Array x = numbers({16, 4}) / 64.f, w = numbers({4, 4}) / 16.f;
  const Array y = jit(f, mesh, {P("i"), P()})(x, w), want = f(x, w);
  EXPECT_EQ(lies(y), on(mesh, P("i")));
  for (std::size_t k = 0; k < 64; ++k) EXPECT_NEAR(values(y)[k], values(want)[k], 1e-6f);
}

TEST(PartitionedJit, AConstantThatALoopBeginsWithIsEachDevicesOwn) {
  const Mesh mesh = mesh8();
  for (const int trips : {2, 100}) {
    const auto f = [trips](Array x) {
      const Array sums = fori_loop(
          0, trips, [&](Array i, Array c) { return c + x * astype(i, f32); }, zeros({16}));
      const auto [last, all] = scan(
          [&](Array c, Array y) {
            return std::pair{c * 0.5f + y, c};
          },
          full({16}, 2.f), broadcast_to(x, {3, 16}));
      return std::tuple{sums, last, sum(all, 0)};
    };
    const auto split = jit(f, mesh, {P("i")}, P("i"));
    const Array x = numbers({16});
    const auto want = f(x);
    for (int call = 0; call < 4; ++call) {
      const auto got = split(x);
      EXPECT_EQ(values(std::get<0>(got)), values(std::get<0>(want))) << trips << " " << call;
      EXPECT_EQ(values(std::get<1>(got)), values(std::get<1>(want))) << trips << " " << call;
      EXPECT_EQ(values(std::get<2>(got)), values(std::get<2>(want))) << trips << " " << call;
    }
  }
}

TEST(PartitionedJit, ConstantsAndCapturedArraysAreMadeAsParts) {
  const Mesh mesh = mesh8();
  // Each device makes its own rows of a constant and of an iota.
  const auto f = [](Array x) {
    const Array rows = broadcast_in_dim(iota(f32, 1024), {1024, 4}, {0});
    return x + exp(full({1024, 4}, 0.5f)) + reshape(astype(iota(i32, 1024), f32), {1024, 1}) + rows;
  };
  const auto split = jit(f, mesh, {P("i")}, P("i"));
  const Array x = numbers({1024, 4});
  EXPECT_EQ(values(split(x)), values(f(x)));
  const auto counted =
      jit([](Array y) { return y + iota(f32, 1024) + iota(bf16, 1024); }, mesh, {P("i")}, P("i"));
  EXPECT_EQ(values(counted(zeros({1024}))), values(iota(f32, 1024) + iota(bf16, 1024)));
  EXPECT_THAT(counted.plan_text(), testing::Not(HasSubstr("f32[1024]")));
  // A closed-over array of which each device needs some rows is placed by rows: no device has all
  // of it.
  const Array table = numbers({1024, 4});
  const auto captured = jit([table](Array y) { return y * table; }, mesh, {P("i")}, P("i"));
  EXPECT_EQ(values(captured(x)), values(x * table));
  EXPECT_THAT(captured.plan_text(), testing::Not(HasSubstr("f32[1024,4]")));
  // A constant that is also used whole stays whole.
  const auto both =
      jit([table](Array y) { return y * table + sum(cumsum(table, 0)); }, mesh, {P("i")}, P("i"));
  EXPECT_EQ(values(both(x)).size(), 4096u);
  EXPECT_THAT(collectives_in(make_jaxpr(both)(x)), IsEmpty());
}

TEST(PartitionedJit, CallsInALoopTraceOnceAndSpecsAreTellApart) {
  const Mesh mesh = mesh8();
  int traces = 0;
  for (int k = 0; k < 3; ++k) {
    const auto counting = [&traces](Array x) {
      ++traces;
      return x + 1.f;
    };
    static const auto f = jit(counting, mesh, {P("i")}, P("i"));
    f(numbers({8}));
  }
  EXPECT_EQ(traces, 1);
  // A function without state has one cache; programs for other specs are separate.
  const auto plus = [](Array x) { return x + 1.f; };
  EXPECT_EQ(lies(jit(plus, mesh, {P("i")}, P("i"))(numbers({8}))), on(mesh, P("i")));
  EXPECT_EQ(lies(jit(plus, mesh, {P("i")}, P())(numbers({8}))), on(mesh, P()));
  EXPECT_EQ(lies(jit(plus, mesh, {P()})(numbers({8}))), on(mesh, P()));
}

TEST(PartitionedJit, ADonatedArgumentIsReused) {
  const Mesh mesh = mesh8();
  const auto f = jit([](Array x) { return x + 1.f; }, mesh, {P("i")}, P("i"));
  Array x = device_put(numbers({1024}), NamedSharding(mesh, P("i")));
  for (int call = 0; call < 5; ++call) x = f(std::move(x));
  EXPECT_EQ(x.to_vector<float>()[3], 8.f);
  Array y = device_put(numbers({8}), NamedSharding(mesh, P("i")));
  f(std::move(y));
  expect_error<ValueError>([&] { f(y); }, {"args[0]"});
}

TEST(PartitionedJit, ProgramsOnMeshesOfManyAbstractDevices) {
  const AbstractMesh mesh({16384}, "i");
  const ClosedJaxpr jaxpr = make_jaxpr(jit(product, mesh, {P("i"), P()}, P("i")))(
      ShapedArray({65536, 8}, f32), ShapedArray({8, 4}, f32));
  EXPECT_THAT(to_string(jaxpr), HasSubstr("mesh=Mesh('i': 16384)"));
  EXPECT_EQ(jaxpr.out_types()[0], ShapedArray({65536, 4}, f32));
  const CostAnalysis cost = cost_analysis(jaxpr);
  EXPECT_EQ(cost.flops, 2 * 4 * 8 * 4);
  EXPECT_THAT(cost.collectives, IsEmpty());
  expect_error<DeviceError>(
      [&] {
        jit(product, mesh, {P("i"), P()})(ones({65536, 8}), ones({8, 4}));
      },
      {"'i': 16384", "abstract", "make_jaxpr", "partitioned_jit_test.cpp"});
  expect_error<DeviceError>(
      [&] {
        eval_jaxpr(jaxpr, {zeros({65536, 8}), zeros({8, 4})});
      },
      {"abstract"});
}

TEST(PartitionedJit, ProgramsAreReadFromTheirText) {
  const Mesh mesh = mesh8();
  const ClosedJaxpr jaxpr = make_jaxpr(jit(product, mesh, {P("i"), P()}, P("i")))(
      ShapedArray({16, 8}, f32), ShapedArray({8, 4}, f32));
  const ClosedJaxpr read = extend::parse_jaxpr(to_string(jaxpr));
  EXPECT_EQ(to_string(read), to_string(jaxpr));
  const Array x = numbers({16, 8}), w = numbers({8, 4});
  EXPECT_EQ(values(eval_jaxpr(read, {x, w})[0]), values(matmul(x, w)));
}

TEST(PartitionedJit, ErrorsNameWhatWhereAndTheRemedy) {
  const Mesh mesh = mesh42();
  const auto f = jit([](Array x, Array y) { return x + y; }, mesh, {P("i", "j"), P("i")}, P("i"));
  expect_error<ValueError>(
      [&] {
        f(ones({6, 2}), ones({5}));
      },
      {"jit: 2 problems", "args[0] (in_specs[0])", "'i'", "6", "4", "partitioned_jit_test.cpp"});
  expect_error<ValueError>(
      [&] {
        f(ones({4, 2}), ones({}));
      },
      {"args[1] (in_specs[1])", "rank 0", "a scalar's spec is P()"});
  expect_error<ValueError>(
      [&] {
        jit(product, mesh, {P("k"), P()});
      },
      {"jit: in_specs[0]", "'k'", "partitioned_jit_test.cpp"});
  expect_error<ValueError>(
      [&] {
        jit(product, mesh, {P("i"), P()}, P("i", "i"));
      },
      {"jit: out_specs", "'i'"});
  expect_error<ValueError>(
      [&] {
        jit(product, mesh, {P("i")})(ones({4, 4}), ones({4, 4}));
      },
      {"1 entry", "2 arguments"});
  expect_error<ValueError>(
      [&] {
        jit(product, mesh, {P(), P()}, P("i", "j"))(ones({6, 4}), ones({4, 4}));
      },
      {"the result (out_specs)", "6", "'i'"});
  expect_error<ValueError>(
      [&] {
        jit(product, mesh, {P(), P()}, {P(), P()})(ones({4, 4}), ones({4, 4}));
      },
      {"out_specs", "the result"});
  const Mesh half = make_mesh({4}, {"i"});
  const Array there = device_put(ones({4, 4}), NamedSharding(half, P("i")));
  expect_error<ValueError>([&] { f(there, ones({4})); },
                           {"args[0]", "is placed on", "is split over", "device_put"});
  const auto inside = shard_map(
      [&](Array b) { return jit([](Array x) { return x; }, mesh, P())(b); }, mesh, P("i"), P("i"));
  expect_error<ValueError>([&] { inside(ones({8})); },
                           {"jit over a mesh", "body of a shard_map", "blocks"});
  expect_error<ValueError>([&] { jit(inside)(ones({8})); }, {"jit over a mesh"});
  // An exception of the function itself comes through, and nothing of the trace stays.
  const auto picky = jit(
      [](Array x) {
        if (x.size() != 8) throw ValueError("wanted 8 elements");
        return x;
      },
      mesh, P());
  expect_error<ValueError>([&] { picky(ones({4})); }, {"wanted 8 elements"});
  EXPECT_EQ(values(picky(ones({8}))), values(ones({8})));
}

}  // namespace
}  // namespace shmap::test
