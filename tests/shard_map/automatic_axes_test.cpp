// shmap-test: devices
// shard_map over some axes of a mesh ({.axis_names = ...}), and inside of the body of another one.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <cmath>

#include "tests/support/automatic_axes.h"
#include "tests/support/error_text.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using test::expect_error;
using test::expect_near;
using test::mesh222;
using test::over;
using test::placed;
using test::wave;

Mesh mesh42() { return make_mesh({4, 2}, {"x", "y"}); }
TEST(AutomaticAxes, TheBodySeesBlocksAlongItsOwnAxesAndWholeArraysAlongTheOthers) {
  const Mesh mesh = mesh42();
  const Array a = wave({8, 6});
  for (const P& spec : {P(), P("x", "y"), P("y"), P(axes("y", "x")), P(none, "y")}) {
    std::string type;
    const auto twice = [&](Array block) {
      type = to_string(block.type());
      return block * 2.f;
    };
    const Array y = shard_map(twice, mesh, P("x"), P("x"), over("x"))(placed(a, mesh, spec));
    EXPECT_EQ(type, "f32[2,6]{x}");
    expect_near(y, a * 2.f);
  }
}

TEST(AutomaticAxes, AnArrayStaysSplitOverThem) {
  const Mesh mesh = mesh42();
  const Array a = placed(wave({8, 6}), mesh, P("x", "y"));
  const auto f =
      shard_map([](Array b) { return b * 2.f + psum(b, "x"); }, mesh, P("x"), P("x"), over("x"));
  reset_counters();
  const Array y = f(a);
  EXPECT_EQ(counters().collectives, 1);  // the body's own
  EXPECT_EQ(counters().copies, 0);
  EXPECT_EQ(y.sharding(), NamedSharding(mesh, P("x", "y")));
  test::expect_same_under_jit(f, test::Communication::same, a);
}

// The contracted dim is split over y: each device multiplies what it has, and one psum over y
// completes the product, as for arrays outside of a body.
TEST(AutomaticAxes, OperationsRunByTheirShardingRules) {
  const Mesh mesh = mesh42();
  const Array a = wave({8, 6}), b = wave({6, 4});
  const auto f = shard_map([](Array p, Array q) { return psum(sum(matmul(p, q), 0), "x"); }, mesh,
                           {P("x"), P()}, P(), over("x"));
  const Array p = placed(a, mesh, P("x", "y")), q = placed(b, mesh, P("y"));
  reset_counters();
  const Array y = f(p, q);
  EXPECT_EQ(counters().collectives, 2);  // over y, then over x
  expect_near(y, sum(matmul(a, b), 0));
  test::expect_same_under_jit(f, test::Communication::no_more, p, q);
}

TEST(AutomaticAxes, ADimThatTheyDoNotDivideBecomesWhole) {
  const Mesh mesh = mesh222();
  const Array a = wave({2, 6});  // blocks of one row, which y does not divide
  const Array y = shard_map([](Array b) { return b * 2.f; }, mesh, P("x"), P("x"),
                            over("x"))(placed(a, mesh, P("y", "z")));
  expect_near(y, a * 2.f);
  EXPECT_EQ(y.sharding(), NamedSharding(mesh, P("x", "z")));
}

TEST(AutomaticAxes, ConstraintsSplitAndGatherValuesOfTheBody) {
  const Mesh mesh = mesh222();
  const Array a = wave({4, 4});
  const auto f = shard_map(
      [mesh](Array b) {
        return with_sharding_constraint(sin(b), NamedSharding(mesh, P("z", "y"))) * 2.f;
      },
      mesh, P("x"), P("x"), over("x"));
  const Array y = f(a);
  EXPECT_EQ(y.sharding(), NamedSharding(mesh, P(axes("x", "z"), "y")));
  expect_near(y, sin(a) * 2.f);
  test::expect_same_under_jit(f, test::Communication::same, a);
  expect_near(grad([&](Array x) { return sum(f(x)); })(a), cos(a) * 2.f);
  expect_error<ValueError>(
      [&] {
        shard_map(
            [mesh](Array b) { return with_sharding_constraint(b, NamedSharding(mesh, P("x"))); },
            mesh, P("x"), P("x"), over("x"))(a);
      },
      {"with_sharding_constraint: P('x') in the body of a shard_map over 'x': 2",
       "name only axes that the shard_map leaves automatic", "automatic_axes_test.cpp:"});
}

TEST(AutomaticAxes, HostReadsAndPrintsShowWholeValues) {
  const Mesh mesh = mesh42();
  const Array a = placed(reshape(arange(8 * 2, i32), {8, 2}), mesh, P("x", "y"));
  shard_map(
      [](Array b) {
        EXPECT_EQ(psum(sum(b), "x").item<int>(), 120);
        EXPECT_EQ(psum(b, "x").to_vector<int>(), (std::vector<int>{24, 28, 32, 36}));
        if (psum(sum(b), "x") == 0) ADD_FAILURE();
        EXPECT_NE(to_string(b).find(" at mesh coordinates (x, y,) = (1, 1,):\n[[4 5]\n [6 7]]"),
                  std::string::npos)
            << b;
        return b;
      },
      mesh, P("x"), P("x"), over("x"))(a);
}

// ---------------------------------------------------------------------------------- nested bodies

TEST(Nested, ABodyMayMapOverTheAxesThatAreAutomaticInIt) {
  const Mesh mesh = mesh42();
  const Array a = wave({8, 6}), b = wave({6, 4});
  std::vector<std::string> types;
  const auto f = shard_map(
      [&](Array p, Array q) {
        const auto product = [&](Array pb, Array qb) {
          types = {to_string(pb.type()), to_string(qb.type())};
          return psum(matmul(pb, qb), "y");
        };
        const Array y = shard_map(product, mesh, {P(none, "y"), P("y")}, P())(p, q);
        types.push_back(to_string(y.type()));
        return psum(sum(y, 0), "x");
      },
      mesh, {P("x"), P()}, P(), over("x"));
  expect_near(f(a, b), sum(matmul(a, b), 0));
  EXPECT_EQ(types, (std::vector<std::string>{"f32[2,3]{x,y}", "f32[3,4]{y}", "f32[2,4]{x}"}));
  const Array p = placed(a, mesh, P("x", "y")), q = placed(b, mesh, P("y"));
  reset_counters();
  expect_near(f(p, q), sum(matmul(a, b), 0));
  EXPECT_EQ(counters().collectives, 2);
  test::expect_same_under_jit(f, test::Communication::same, p, q);
  test::expect_same_under_jit(f, test::Communication::no_more, a, b);
}

Array three_deep(const Mesh& mesh, const Array& a) {
  return shard_map(
      [mesh](Array p) {
        const auto middle = [mesh](Array q) {
          const auto inner = [](Array r) { return psum(sin(r), "z"); };
          return psum(shard_map(inner, mesh, P(), P())(q), "y") + q;
        };
        return shard_map(middle, mesh, P(none, "y"), P(none, "y"), over("y"))(p) + psum(p, "x");
      },
      mesh, P("x"), P("x"), over("x"))(a);
}

TEST(Nested, ThreeDeepWithDerivatives) {
  const Mesh mesh = mesh222();
  const Array a = wave({4, 4}), weights = cos(a);
  const auto whole = [](Array x) {  // the same on one device
    const auto halves = split(x, 2, 0);
    const Array rows = halves[0] + halves[1];
    const auto sides = split(sin(x) * 2.f, 2, 1);
    const Array columns = sides[0] + sides[1];
    return concatenate({columns, columns}, 1) + x + concatenate({rows, rows}, 0);
  };
  const auto f = [&](Array x) { return three_deep(mesh, x); };
  const auto loss = [&](auto g) { return [=](Array x) { return sum(g(x) * weights); }; };
  const Array want = grad(loss(whole))(a);
  for (const P& spec : {P(), P("x", "y"), P("z", "y"), P(axes("y", "x"), "z")}) {
    const Array x = placed(a, mesh, spec);
    expect_near(f(x), whole(a), "the value");
    expect_near(jit(f)(x), whole(a), "the value under jit");
    expect_near(grad(loss(f))(x), want, "the gradient");
    expect_near(jit(grad(loss(f)))(x), want, "the gradient under jit");
    const auto [y, slope] = jvp(loss(f), std::tuple{x}, std::tuple{weights});
    expect_near(slope, sum(want * weights), "the derivative along a direction");
  }
  const Array batch = stack({a, a * 2.f, a - 1.f}, 1);
  const Array batched = vmap(f, 1, 1)(batch);
  for (int k = 0; k < 3; ++k) expect_near(take(batched, k, 1), whole(take(batch, k, 1)), "vmap");
  const auto hessian_of = [&](auto g) {
    return jacrev([=](Array x) { return grad(loss(g))(x)[0]; })(a);
  };
  expect_near(hessian_of(f), hessian_of(whole), "second derivatives");
}

TEST(Nested, TheInnerBodyMayCloseOverValuesOfTheOuterOne) {
  const Mesh mesh = mesh42();
  const Array a = wave({8, 6});
  const auto f = shard_map(
      [mesh](Array p) {
        const Array twice = p * 2.f;
        return shard_map([&](Array q) { return q + psum(sum(twice) * 0.5f, "y"); }, mesh,
                         P(none, "y"), P(none, "y"))(p);
      },
      mesh, P("x"), P("x"), over("x"));
  std::vector<Array> want;
  for (const Array& rows : split(a, 4, 0)) want.push_back(rows + sum(rows) * 2.f);
  expect_near(f(a), concatenate(want, 0));
  test::expect_same_under_jit(f, test::Communication::no_more, a);
}

TEST(Nested, AsAnEquation) {
  const Mesh mesh = mesh42();
  const auto f = [mesh](Array a) {
    return shard_map(
        [mesh](Array p) {
          return shard_map([](Array q) { return psum(q, "y"); }, mesh, P(none, "y"), P())(p);
        },
        mesh, P("x"), P("x"), over("x"))(a);
  };
  const Array a = wave({8, 6});
  const ClosedJaxpr jaxpr = make_jaxpr(f)(a);
  const std::string text = to_string(jaxpr);
  EXPECT_NE(text.find("b:f32[8,3] = shard_map[axis_names=('x',)"), std::string::npos) << text;
  EXPECT_NE(text.find("b:f32[2,3]{x} = shard_map[axis_names=('y',)"), std::string::npos) << text;
  EXPECT_EQ(to_string(typecheck(jaxpr)), "(f32[8,6]) -> (f32[8,3])");
  expect_near(eval_jaxpr(jaxpr, {a})[0], f(a));
  const ClosedJaxpr read = extend::parse_jaxpr(text);
  EXPECT_EQ(to_string(read), text);
  expect_near(eval_jaxpr(read, {a})[0], f(a));
  const CostAnalysis cost = cost_analysis(jaxpr);
  ASSERT_EQ(cost.collectives.size(), 1u);
  EXPECT_EQ(cost.collectives[0].bytes, 2 * 3 * 4);
  const auto symbolic = [](Array x) {
    const AbstractMesh wide({64, 32}, {"x", "y"});
    return shard_map(
        [wide](Array p) {
          return shard_map([](Array q) { return psum(q, "y"); }, wide, P(none, "y"), P())(p);
        },
        wide, P("x"), P("x"), over("x"))(x);
  };
  EXPECT_EQ(to_string(typecheck(make_jaxpr(symbolic)(ShapedArray({128, 64}, f32)))),
            "(f32[128,64]) -> (f32[128,2])");
}

// ---------------------------------------------- each against the same body over all axes of the
// mesh

template <class F>
void expect_as_over_all_axes(const char* what, F body, bool derivatives = true) {
  const Mesh mesh = mesh222();
  const Array a = wave({8, 8});
  const auto of = [&](ShardMapOptions options) {
    return [=](Array x) { return shard_map(body, mesh, P("x"), P("x"), options)(x); };
  };
  const auto want = of({}), f = of(over("x"));
  const auto loss = [](auto g) { return [=](Array x) { return sum(g(x) * g(x)); }; };
  for (const P& spec : {P(), P(axes("x", "y"), "z"), P(none, axes("z", "y"))}) {
    const std::string how = std::string(what) + " of " + to_string(spec);
    const Array x = placed(a, mesh, spec);
    expect_near(f(x), want(a), how);
    const auto jitted = jit(f);
    for (int call = 0; call < 3; ++call) expect_near(jitted(x), want(a), how + " under jit");
    if (!derivatives) continue;
    expect_near(grad(loss(f))(x), grad(loss(want))(a), how + ", gradient");
    expect_near(jit(grad(loss(f)))(x), grad(loss(want))(a), how + ", gradient under jit");
  }
}

TEST(AutomaticAxes, CollectivesOfBlocksThatAreSplit) {
  const std::vector<std::pair<int, int>> swap = {{0, 1}, {1, 0}};
  expect_as_over_all_axes("reductions", [](Array p) {
    return psum(p, "x") * p + pmax(p, "x") + pmin(p, "x") + pmean(p, "x");
  });
  expect_as_over_all_axes("permutations", [=](Array p) {
    return ppermute(p, "x", swap) * p + broadcast_from(p, "x", 1);
  });
  expect_as_over_all_axes("gathers", [](Array p) {
    const Array tiled = all_gather(p, "x", {.axis = 1, .tiled = true});
    const Array stacked = all_gather(p, "x", {.axis = 2});
    return p * sum(tiled) + stacked[{range(), range(), 1}] +
           all_gather_invariant(p, "x", {.tiled = true})[{range(4, 8)}];
  });
  expect_as_over_all_axes("scatters", [](Array p) {
    const Array tiled = psum_scatter(p, "x", {.scatter_dimension = 1, .tiled = true});
    const Array single = psum_scatter(reshape(p, {4, 2, 4}), "x", {.scatter_dimension = 1});
    return concatenate({tiled, single * tiled}, 1);
  });
  expect_as_over_all_axes("exchanges", [](Array p) {
    const Array tiled = all_to_all(p, "x", 0, 1, {.tiled = true});
    const Array single = all_to_all(reshape(p, {2, 2, 8}), "x", 0, 2);
    return reshape(tiled, {4, 8}) * p + reshape(single, {4, 8});
  });
}

TEST(AutomaticAxes, ControlFlow) {
  expect_as_over_all_axes("a loop", [](Array p) {
    return fori_loop(
        0, 3, [](Array, Array c) { return c * 0.5f + sum(c, 1, true) * 0.1f; }, p);
  });
  expect_as_over_all_axes("a branch of each device", [](Array p) {
    const auto f = [](Array q) { return q * sum(q); };
    const auto g = [](Array q) { return matmul(q, transpose(q))[0][0] + q; };
    return switch_(axis_index("x"), std::tuple{f, g}, p);
  });
  expect_as_over_all_axes("a scan", [](Array p) {
    const auto [c, ys] = scan(
        [](Array c, Array row) {
          const Array next = tanh(c + row);
          return std::pair{next, next * psum(c, "x")};
        },
        p[0], p);
    return ys + c;
  });
  expect_as_over_all_axes(
      "trips of each device",
      [](Array p) {
        const auto more = [](std::tuple<Array, Array> s) {
          return std::get<0>(s) < axis_index("x") + 2;
        };
        const auto trip = [](std::tuple<Array, Array> s) {
          const auto& [i, v] = s;
          return std::tuple{i + 1, v * 1.1f + sum(v, 0)};
        };
        return std::get<1>(while_loop(more, trip, std::tuple{Array(0), p}));
      },
      false);
}

TEST(AutomaticAxes, TransformsInTheBody) {
  expect_as_over_all_axes(
      "jit", [](Array p) { return jit([](Array q) { return sin(q) * 2.f + sum(q); })(p); });
  expect_as_over_all_axes("checkpoint", [](Array p) {
    return checkpoint([](Array q) { return sin(q) * psum(sum(q), "x"); })(p);
  });
  expect_as_over_all_axes(
      "vmap", [](Array p) { return vmap([](Array row) { return row * psum(sum(row), "x"); })(p); });
  expect_as_over_all_axes("grad", [](Array p) {
    return grad([](Array q) { return sum(sin(q) * q); })(p) * psum(p, "x");
  });
  expect_as_over_all_axes("custom_vjp", [](Array p) {
    const auto f = custom_vjp([](Array q) { return sin(q); },
                              [](Array q) {
                                return std::pair{sin(q), q};
                              },
                              [](Array q, Array ct) { return std::tuple{cos(q) * ct}; });
    return f(p);
  });
  expect_as_over_all_axes("keys", [](Array p) {
    return p * random::normal(random::fold_in(random::key(3), axis_index("x")), p.shape());
  });
}

TEST(AutomaticAxes, Options) {
  const Mesh mesh = mesh42();
  const Array a = wave({8, 6}), x = placed(a, mesh, P("x", "y"));
  ShardMapOptions unchecked = over("x"), no_casts = over("x");
  unchecked.check_vma = false;
  no_casts.auto_pbroadcast = false;
  const auto first = [&](ShardMapOptions options) {
    return shard_map([](Array p) { return all_gather(p, "x", {.tiled = true})[0]; }, mesh, P("x"),
                     P(), options);
  };
  expect_near(first(unchecked)(x), a[0]);
  expect_near(jit(first(unchecked))(x), a[0]);
  expect_error<ValueError>([&] { first(over("x"))(x); },
                           {"leaves out mesh axes {'x'}", "f32[6]{x}"});
  const auto add = [&](bool cast) {
    return shard_map(
        [=](Array p) {
          const Array total = psum(p, "x");
          return p + (cast ? pbroadcast(total, "x") : total);
        },
        mesh, P("x"), P("x"), no_casts);
  };
  expect_near(add(true)(x),
              a + concatenate(std::vector<Array>(4, sum(reshape(a, {4, 2, 6}), 0)), 0));
  expect_error<TypeError>([&] { add(false)(x); }, {"auto_pbroadcast is off"});
}

TEST(AutomaticAxes, Errors) {
  const Mesh mesh = mesh42();
  const Array a = wave({8, 6});
  const auto same = [](Array p) { return p; };
  const auto call = [&](auto f, P in, P out, ShardMapOptions options) {
    return [=] { shard_map(f, mesh, in, out, options)(a); };
  };
  expect_error<CollectiveError>(
      call([](Array p) { return psum(p, "y"); }, P("x"), P("x"), over("x")),
      {"psum: unbound axis name 'y'", "the mesh axes in scope are 'x': 4",
       "axis_names, these must name it"});
  expect_error<ValueError>(call(same, P("x", "y"), P("x"), over("x")),
                           {"args[0] (in_specs)", "P('x', 'y') names {'y'}",
                            "mapped over {'x'} alone", "name them in axis_names"});
  expect_error<ValueError>(call(same, P("x"), P("x", "y"), over("x")),
                           {"the result (out_specs)", "names {'y'}"});
  expect_error<ValueError>(call(same, P("x"), P("x"), over("z")),
                           {"axis_names 'z' has 'z'", "'x': 4, 'y': 2", "automatic_axes_test.cpp"});
  expect_error<ValueError>(call(same, P("x"), P("x"), over({"x", "x"})), {"'x' twice"});
  const auto nested = [&](P spec, ShardMapOptions options) {
    return [=](Array p) { return shard_map(same, mesh, spec, spec, options)(p); };
  };
  expect_error<ValueError>(
      call(nested(P(), {}), P("x"), P("x"), {}),
      {"in the body of another shard_map, which is mapped over all axes", ".axis_names = \"x\""});
  expect_error<ValueError>(call(nested(P(), over("x")), P("x"), P("x"), over("x")),
                           {"which is mapped over {'x'} already"});
  expect_error<ValueError>(call(nested(P(none, "x"), {}), P("x"), P("x"), over("x")),
                           {"args[0] (in_specs)", "one device's block along them already"});
  const Mesh other = make_mesh({2, 4}, {"x", "y"});
  expect_error<ValueError>(call([=](Array p) { return shard_map(same, other, P("y"), P("y"))(p); },
                                P("x"), P("x"), over("x")),
                           {"nested mapped functions have one mesh"});
}

}  // namespace
}  // namespace shmap
