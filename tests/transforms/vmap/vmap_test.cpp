// shmap-test: devices
// vmap as users call it: trees, axes, nesting, other transforms around it and in it, errors.
#include "shmap/vmap.h"

#include <gtest/gtest.h>

#include <map>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/vmap_loop.h"

namespace shmap {
namespace {

using test::expect_error;
using testing::array_diff;
using testing::check_vmap;
using testing::test_values;

Array values(Shape shape, unsigned seed = 1) { return test_values(ShapedArray(shape, f32), seed); }

struct Layer {
  Array w;
  Array b;
  float scale;
};

// ---- axes and trees

TEST(Vmap, FunctionSeesOneExample) {
  int calls = 0;
  Shape seen;
  const Array x = values({3, 4});
  const Array y = vmap([&](Array row) {
    ++calls;
    seen = row.shape();
    return sum(row);
  })(x);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(seen, Shape({4}));
  EXPECT_EQ(array_diff(sum(x, 1), y, 1e-6), "");
}

TEST(Vmap, AxesCountFromTheEndToo) {
  const Array x = values({2, 3, 4});
  const auto f = [](Array a) { return a * 2.f; };
  EXPECT_EQ(array_diff(x * 2.f, vmap(f, 1, 1)(x), 0), "");
  EXPECT_EQ(array_diff(x * 2.f, vmap(f, -1, -1)(x), 0), "");
  EXPECT_EQ(array_diff(transpose(x, {2, 0, 1}) * 2.f, vmap(f, -1)(x), 0), "");
  EXPECT_EQ(array_diff(transpose(x, {1, 0, 2}) * 2.f, vmap(f, 0, 1)(x), 0), "");
  EXPECT_EQ(array_diff(transpose(x, {1, 2, 0}) * 2.f, vmap(f, -3, 2)(x), 0), "");
}

TEST(Vmap, OneArgumentIsTheSameForAll) {
  const Array x = values({3, 4}), w = values({4});
  const auto f = [](Array a, Array b) { return sum(a * b); };
  const Array want = sum(x * w, 1);
  EXPECT_EQ(array_diff(want, vmap(f, {0, none})(x, w), 1e-6), "");
  EXPECT_EQ(array_diff(want, vmap(f, {none, 0})(w, x), 1e-6), "");
  EXPECT_EQ(array_diff(want, vmap(f, {1, none})(transpose(x), w), 1e-6), "");
}

TEST(Vmap, HostScalarsAreTheSameForAllWhereTheirAxisIsNone) {
  const Array x = values({3});
  EXPECT_EQ(array_diff(x * 3.f, vmap([](Array a, Array b) { return a * b; }, {0, none})(x, 3.f), 0),
            "");
  expect_error<ValueError>(
      [&] { vmap([](Array a, Array b) { return a * b; })(x, 3.f); },
      {"vmap: args[1] of type f32[]", "in_axes = 0", "a scalar has no dims; give it none"});
}

TEST(Vmap, TreesWithPrefixesOfAxes) {
  const Layer layer{values({3, 4, 5}), values({5}), 2.f};
  const Array x = values({4, 3});
  const auto f = [](Layer l, std::map<std::string, Array> in) {
    return std::pair{matmul(in.at("x"), l.w) * l.scale + l.b, in.at("n")};
  };
  const std::map<std::string, Array> in{{"n", values({3}, 7)}, {"x", x}};
  const auto [y, n] = vmap(f, {{0, none}, {0, 1}}, {1, 0})(layer, in);
  EXPECT_EQ(y.shape(), Shape({5, 3}));
  for (int k = 0; k < 3; ++k) {
    const Layer one{layer.w[k], layer.b, 2.f};
    const Array want = f(one, {{"n", in.at("n")[k]}, {"x", testing::item_along(x, 1, k)}}).first;
    EXPECT_EQ(array_diff(want, testing::item_along(y, 1, k), 1e-5), "");
  }
  EXPECT_EQ(array_diff(in.at("n"), n, 0), "");
  // An entry for a whole argument, and one for all of them.
  const Layer two{values({3, 4, 5}), values({3, 5}), 1.f};
  const auto whole = [](Layer l, Array a) { return matmul(a, l.w) + l.b; };
  EXPECT_EQ(vmap(whole, {0, none})(two, values({4})).shape(), Shape({3, 5}));
  EXPECT_EQ(vmap(whole)(two, values({3, 4})).shape(), Shape({3, 5}));
}

TEST(Vmap, ResultsThatAreOneAreRepeatedOrGivenAsTheyAre) {
  const Array x = values({3, 2}), w = values({2});
  const auto f = [&](Array a, Array b) { return std::tuple{a + b, b * 2.f, Array(1.5f)}; };
  const auto [sums, twice, number] = vmap(f, {0, none}, {0, none, none})(x, w);
  EXPECT_EQ(array_diff(w * 2.f, twice, 0), "");
  EXPECT_EQ(number.item<float>(), 1.5f);
  const auto [sums1, twice1, number1] = vmap(f, {0, none}, {0, 1, 0})(x, w);
  EXPECT_EQ(array_diff(sums, sums1, 0), "");
  EXPECT_EQ(array_diff(stack({w * 2.f, w * 2.f, w * 2.f}, 1), twice1, 0), "");
  EXPECT_EQ(array_diff(full({3}, 1.5f), number1, 0), "");
}

TEST(Vmap, OfNoneAndOfOne) {
  const auto f = [](Array a, Array b) { return matmul(a, b) + cumsum(a[0], 0)[0]; };
  EXPECT_EQ(vmap(f, {0, none})(zeros({0, 2, 3}), ones({3, 4})).shape(), Shape({0, 2, 4}));
  const Array x = values({1, 2, 3}), w = values({3, 4});
  EXPECT_EQ(array_diff(expand_dims(f(x[0], w), 0), vmap(f, {0, none})(x, w), 1e-5), "");
}

TEST(Vmap, Nests) {
  const Array x = values({3, 4}), y = values({5, 4}, 2);
  const auto dot = [](Array a, Array b) { return sum(a * b); };
  const Array want = matmul(x, transpose(y));
  EXPECT_EQ(array_diff(want, vmap(vmap(dot, {none, 0}), {0, none})(x, y), 1e-5), "");
  EXPECT_EQ(array_diff(transpose(want), vmap(vmap(dot, {0, none}), {none, 0})(x, y), 1e-5), "");
  // An inner one over what the outer one has mapped, and closing over it.
  const Array z = vmap([&](Array a) { return vmap([&](Array b) { return dot(a, b); })(y); })(x);
  EXPECT_EQ(array_diff(want, z, 1e-5), "");
  const Array cube = values({2, 3, 4});
  const auto third = vmap(vmap(vmap([](Array s) { return s * s; })));
  EXPECT_EQ(array_diff(cube * cube, third(cube), 0), "");
}

// ---- programs

TEST(Vmap, BecomesOneProduct) {
  const auto f = [](Array m, Array v) { return matmul(m, v); };
  const ClosedJaxpr jaxpr =
      make_jaxpr(vmap(f, {none, 0}))(ShapedArray({2, 3}, f32), ShapedArray({5, 3}, f32));
  EXPECT_EQ(to_string(typecheck(jaxpr)), "(f32[2,3], f32[5,3]) -> (f32[5,2])");
  const std::string text = to_string(jaxpr);
  std::size_t products = 0;
  for (std::size_t at = 0; (at = text.find("dot_general", at)) != std::string::npos; ++at)
    ++products;
  EXPECT_EQ(products, 1u) << text;
}

TEST(Vmap, WithJitInAnyOrder) {
  const auto f = [](Array a, Array b) { return std::pair{tanh(a) * b, b + 1.f}; };
  const Array x = values({3, 4}), w = values({4});
  const Array want = tanh(x) * w;
  for (int call = 0; call < 4; ++call) {
    static const auto outside = jit(vmap(f, {0, none}, {0, none}));
    static const auto inside = vmap(jit(f), {0, none}, {0, none});
    static const auto both = jit(vmap(jit(f), {0, none}, {0, none}));
    for (const auto& [y, z] : {outside(x, w), inside(x, w), both(x, w)}) {
      EXPECT_EQ(array_diff(want, y, 1e-6), "");
      EXPECT_EQ(array_diff(w + 1.f, z, 0), "");
    }
  }
  const std::string text = to_string(make_jaxpr(vmap(jit(f), {0, none}, {0, none}))(x, w));
  EXPECT_NE(text.find("jit"), std::string::npos) << text;
}

TEST(Vmap, OfAProgramThatClosesOverABatchedValue) {
  const Array x = values({3, 4});
  const auto f = [](Array a) { return jit([&](Array b) { return a * b; })(sum(a)); };
  const Array want = x * sum(x, 1, true);
  EXPECT_EQ(array_diff(want, vmap(f)(x), 1e-6), "");
  EXPECT_EQ(array_diff(want, jit(vmap(f))(x), 1e-6), "");
}

TEST(Vmap, ShardingConstraintsLeaveTheBatchDimWhole) {
  const Mesh mesh = make_mesh({2}, {"i"});
  const auto f = [&](Array a) {
    return with_sharding_constraint(a * 2.f, NamedSharding(mesh, P("i"))) + 1.f;
  };
  const Array x = values({3, 4});
  EXPECT_EQ(array_diff(x * 2.f + 1.f, vmap(f)(x), 0), "");
  EXPECT_EQ(array_diff(transpose(x * 2.f + 1.f), jit(vmap(f, 1, 1))(transpose(x)), 0), "");
  const Array y =
      vmap([&](Array a) { return with_sharding_constraint(a, NamedSharding(mesh, P("i"))); })(x);
  EXPECT_EQ(to_string(y.sharding().spec()), "P(none, 'i')");
}

TEST(Vmap, OfShardedArrays) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = device_put(values({8, 4}), NamedSharding(mesh, P("i", "j")));
  const Array w = values({4, 6});
  const auto f = [](Array a, Array b) { return sort(matmul(a, b)); };
  EXPECT_EQ(array_diff(sort(matmul(x, w), 1), vmap(f, {0, none})(x, w), 1e-5), "");
  EXPECT_EQ(array_diff(sort(matmul(x, w), 1), jit(vmap(f, {0, none}))(x, w), 1e-5), "");
}

// ---- loops and branches

using Arrays = std::vector<Array>;

TEST(Vmap, Branches) {
  const auto by_sign = [](const Arrays& in) {
    return Arrays{cond(
        sum(in[0]) > 1.3f, [](Array a, Array b) { return a * b; },
        [](Array a, Array b) { return a - b; }, in[0], in[1])};
  };
  EXPECT_EQ(check_vmap({"cond", by_sign, {ShapedArray({3}, f32), ShapedArray({}, f32)}}), "");
  const auto closes_over = [](const Arrays& in) {
    const Array twice = in[0] * 2.f;
    return Arrays{cond(
        in[1], [&](Array a) { return a + twice; }, [&](Array) { return twice; }, in[0])};
  };
  EXPECT_EQ(check_vmap({"cond that closes over",
                        closes_over,
                        {ShapedArray({2}, f32), ShapedArray({}, DType::bool_)}}),
            "");
  const auto one_of_three = [](const Arrays& in) {
    return Arrays{switch_(in[0] * 2 - 3,
                          {[](Array a) { return a; }, [](Array a) { return a * 10.f; },
                           [](Array a) { return cumsum(a, 0); }},
                          in[1])};
  };
  EXPECT_EQ(check_vmap({"switch", one_of_three, {ShapedArray({}, i32), ShapedArray({3}, f32)}}),
            "");
}

TEST(Vmap, LoopsThatEndAtDifferentTimes) {
  const auto doubled = [](const Arrays& in) {
    return while_loop([&](Arrays c) { return sum(c[0]) < in[1] * 10.f; },
                      [](Arrays c) {
                        return Arrays{c[0] * 2.f, c[1] + 1};
                      },
                      Arrays{in[0], Array(0)});
  };
  EXPECT_EQ(check_vmap({"while", doubled, {ShapedArray({2}, f32), ShapedArray({}, f32)}}), "");
  // The predicate is the same for all elements at first, and differs after a trip.
  const auto later = [](const Arrays& in) {
    return while_loop([](Arrays c) { return c[0] < 3.f; },
                      [&](Arrays c) {
                        return Arrays{c[0] + in[0], c[1] * 2.f};
                      },
                      Arrays{zeros({}), in[1]});
  };
  EXPECT_EQ(check_vmap({"while, later", later, {ShapedArray({}, f32), ShapedArray({2}, f32)}}), "");
  const auto bounds = [](const Arrays& in) {
    return Arrays{fori_loop(
        in[0], in[1] + 2, [&](Array i, Array c) { return c * 2.f + astype(i, f32); }, in[2])};
  };
  EXPECT_EQ(check_vmap({"fori_loop",
                        bounds,
                        {ShapedArray({}, i32), ShapedArray({}, i32), ShapedArray({2}, f32)}}),
            "");
}

TEST(Vmap, Scans) {
  const auto running = [](const Arrays& in) {
    const auto [c, ys] = scan(
        [&](Array c, Array x) {
          return std::pair{c + x * in[2], std::pair{c * 2.f, x}};
        },
        in[0], in[1]);
    return Arrays{c, ys.first, ys.second};
  };
  EXPECT_EQ(check_vmap({"scan",
                        running,
                        {ShapedArray({2}, f32), ShapedArray({4, 2}, f32), ShapedArray({}, f32)}}),
            "");
  const auto backwards = [](const Arrays& in) {
    // The second of the carry is batched only once it took over the first.
    const auto [c, ys] = scan(
        [&](std::pair<Array, Array> c, Array x) {
          return std::pair{std::pair{c.first + x, c.first}, c.second};
        },
        std::pair{in[0], zeros({})}, in[1], {.reverse = true});
    return Arrays{c.first, c.second, ys};
  };
  EXPECT_EQ(
      check_vmap({"scan, reversed", backwards, {ShapedArray({}, f32), ShapedArray({3}, f32)}}), "");
}

// ---- derivatives

TEST(Vmap, DerivativesInAnyOrder) {
  const auto f = [](Array x, Array w) { return sum(tanh(x * w) * x); };
  const std::vector<ShapedArray> in{ShapedArray({3}, f32), ShapedArray({3}, f32)};
  const auto gradients = [&](const Arrays& a) {
    auto [gx, gw] = grad<0, 1>(f)(a[0], a[1]);
    return Arrays{gx, gw};
  };
  EXPECT_EQ(check_vmap({"grad", gradients, in, 1e-5}), "");
  const auto tangents = [&](const Arrays& a) {
    auto [y, dy] = jvp(f, std::tuple{a[0], a[1]}, std::tuple{a[1], none});
    return Arrays{y, dy};
  };
  EXPECT_EQ(check_vmap({"jvp", tangents, in, 1e-5}), "");
  const auto along = [&](const Arrays& a) {
    auto [y, f_lin] = linearize(f, a[0], a[1]);
    return Arrays{y, f_lin(a[1], a[0])};
  };
  EXPECT_EQ(check_vmap({"linearize", along, in, 1e-5}), "");
  const auto second = [&](const Arrays& a) {
    return Arrays{grad([&](Array x) { return sum(grad(f)(x, a[1])); })(a[0])};
  };
  EXPECT_EQ(check_vmap({"grad of grad", second, in, 1e-4}), "");
  // Around it.
  const Array x = values({4, 3}), w = values({3}, 2);
  const auto total = [&](Array xs, Array v) { return sum(vmap(f, {0, none})(xs, v)); };
  auto [gx, gw] = grad<0, 1>(total)(x, w);
  const auto rows = vmap([&](Array a) {
    auto [p, q] = grad<0, 1>(f)(a, w);
    return std::pair{p, q};
  })(x);
  EXPECT_EQ(array_diff(rows.first, gx, 1e-5), "");
  EXPECT_EQ(array_diff(sum(rows.second, 0), gw, 1e-5), "");
  auto [jx, jw] = jit(grad<0, 1>(total))(x, w);
  EXPECT_EQ(array_diff(gx, jx, 1e-5), "");
  EXPECT_EQ(array_diff(gw, jw, 1e-5), "");
  const auto [y, dy] = jvp(total, std::tuple{x, w}, std::tuple{ones({4, 3}), none});
  EXPECT_EQ(array_diff(sum(gx), dy, 1e-4), "");
}

// Scalar functions of x and of an index, whose predicates, starts and orders differ among the
// examples.
std::vector<std::pair<const char*, std::function<Array(Array, Array)>>> indexed_functions() {
  return {
      {"take",
       [](Array x, Array k) {
         return sum(take(x * x, stack({k, k + 1})));
       }},
      {"index", [](Array x, Array k) { return sin(x)[k] * x[0]; }},
      {"dynamic_slice", [](Array x, Array k) { return sum(square(dynamic_slice(x, {k}, {2}))); }},
      {"dynamic_update_slice",
       [](Array x, Array k) {
         return sum(square(dynamic_update_slice(x, slice(x, {0}, {2}) * 2.f, {k})));
       }},
      {"sort", [](Array x, Array k) { return sum(sort(x) * arange(4)) * astype(k, f32); }},
      {"cond",
       [](Array x, Array k) {
         return cond(
             k > 1, [](Array a) { return sum(a * a); }, [](Array a) { return prod(a); }, x);
       }},
      {"switch",
       [](Array x, Array k) {
         return switch_(k,
                        {[](Array a) { return sum(a * a); }, [](Array a) { return a[1]; },
                         [](Array a) { return logsumexp(a); }},
                        x);
       }},
      {"scan",
       [](Array x, Array k) {
         return scan(
                    [&](Array c, Array v) {
                      return std::pair{c * v + astype(k, f32), c};
                    },
                    x[0], x)
             .first;
       }},
      {"jit",
       [](Array x, Array k) {
         return jit([](Array a, Array i) { return sum(tanh(a) * astype(i, f32)); })(x, k);
       }},
  };
}

TEST(Vmap, DerivativesOfWhatDiffersAmongExamples) {
  const Array xs = values({5, 4}), ks = array({0, 3, 1, 2, 1}, {5});
  for (const auto& [name, f] : indexed_functions()) {
    const auto g = f;
    const auto gradient = [g](const Arrays& a) { return Arrays{grad(g)(a[0], a[1])}; };
    EXPECT_EQ(check_vmap({name, gradient, {ShapedArray({4}, f32), ShapedArray({}, i32)}, 1e-5}),
              "");
    const auto total = [g, ks](Array x) { return sum(vmap(g)(x, ks)); };
    const Array want = vmap(grad(g))(xs, ks);
    EXPECT_EQ(array_diff(want, grad(total)(xs), 1e-5), "") << name;
    EXPECT_EQ(array_diff(want, jit(grad(total))(xs), 1e-5), "") << name;
    EXPECT_EQ(array_diff(want, grad(jit(total))(xs), 1e-5), "") << name;
    EXPECT_EQ(
        array_diff(sum(want), jvp(total, std::tuple{xs}, std::tuple{ones({5, 4})}).second, 1e-4),
        "")
        << name;
  }
}

// ---- what the host sees

TEST(Vmap, PrintsTypesAndALineForEach) {
  std::string type;
  ::testing::internal::CaptureStdout();
  vmap([&](Array a) {
    type = to_string(a);
    debug::print("a = {}, {}", a, 7);
    debug::print("one for all");
    return a;
  })(array({1, 2, 3, 4}, {2, 2}));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "a = [1 2], 7\na = [3 4], 7\none for all\n");
  EXPECT_EQ(type, "Batched<i32[2]>");
  const auto nested = [](Array a) {
    return vmap(
        [&](Array b, Array c) {
          debug::print("{} {}", b, c);
          return b;
        },
        {0, none})(a, a);
  };
  ::testing::internal::CaptureStdout();
  vmap(nested)(array({1, 2, 3, 4}, {2, 2}));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "1 [1 2]\n3 [3 4]\n2 [1 2]\n4 [3 4]\n");
  ::testing::internal::CaptureStdout();
  vmap(grad([](Array a) {
    debug::print("{}", a);
    return a * a;
  }))(array({1.f, 2.f}, {2}));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "1.0\n2.0\n");
}

TEST(Vmap, HostCannotReadBatchedValues) {
  const Array x = values({3});
  expect_error<TypeError>(
      [&] { vmap([](Array a) { return a > 0 ? a : -a; })(x); },
      {"bool[]", "under vmap", "the result of gt at", "in the vmap made at", "where, cond"});
  expect_error<TypeError>(
      [&] { vmap([](Array a) { return a * a.item<float>(); })(x); },
      {"item", "under vmap", "an argument of the function", "in the vmap made at"});
}

TEST(Vmap, ValuesMayNotEscape) {
  Array kept;
  vmap([&](Array a) { return kept = a * 2.f; })(values({3}));
  expect_error<TypeError>([&] { kept + 1.f; },
                          {"f32[]", "under vmap", "the result of mul at", "Return it"});
  expect_error<TypeError>([&] { vmap([](Array a) { return a; })(kept); },
                          {"args[0]", "under vmap"});
}

// ---- errors

TEST(VmapErrors, UnequalSizesNameAllArguments) {
  const auto f = [](Layer l, Array a, Array b) { return l.w + l.b + a + b; };
  expect_error<ValueError>(
      [&] {
        vmap(f, {0, 1, none})(Layer{zeros({3}), zeros({3}), 1.f}, zeros({2, 4}), zeros({2}));
      },
      {"vmap: the batch dims of the arguments have different sizes",
       "\n  * args[0].field(0) of type f32[3] has size 3 along axis 0",
       "\n  * args[0].field(1) of type f32[3] has size 3 along axis 0",
       "\n  * args[1] of type f32[2,4] has size 4 along axis 1",
       "\n  * args[2] of type f32[2] has no batch dim", "give another axis, or none",
       "vmap_test.cpp"});
}

TEST(VmapErrors, AxisOutOfRange) {
  const auto f = [](Array a, Array b) { return a + b; };
  expect_error<ValueError>(
      [&] {
        vmap(f, {0, 2})(zeros({3}), zeros({3, 2}));
      },
      {"args[1] of type f32[3,2]", "in_axes[1] = 2", "out of range", "wanted one from -2 to 1"});
  expect_error<ValueError>([&] { vmap(f, -2)(zeros({3}), zeros({3})); },
                           {"args[0] of type f32[3]", "in_axes = -2", "wanted one from -1 to 0"});
  expect_error<ValueError>(
      [&] {
        vmap(f, 0, 2)(zeros({3, 2}), zeros({3, 2}));
      },
      {"the result", "2 dims with the batch dim", "out_axes = 2", "wanted one from -2 to 1"});
}

TEST(VmapErrors, AxesThatDoNotFitTheTree) {
  const auto f = [](std::pair<Array, Array> p, Array b) { return p.first + b; };
  const std::pair p{zeros({3}), zeros({3})};
  expect_error<ValueError>([&] { vmap(f, {0})(p, zeros({3})); },
                           {"in_axes = {0} has 1 entry", "called with 2 arguments"});
  expect_error<ValueError>(
      [&] {
        vmap(f, {{0, 0, 0}, 0})(p, zeros({3}));
      },
      {"in_axes[0] = {0, 0, 0} has 3 entries", "args[0] is a list of 2"});
  expect_error<ValueError>(
      [&] {
        vmap(f, {0, {0, 1}})(p, zeros({3}));
      },
      {"in_axes[1] = {0, 1} is a list", "args[1] is an array"});
  expect_error<ValueError>(
      [&] {
        vmap(f, 0, {0, 0})(p, zeros({3}));
      },
      {"out_axes = {0, 0} is a list", "the result is an array"});
}

TEST(VmapErrors, NothingIsMapped) {
  const auto f = [](Array a, Array b) { return a + b; };
  expect_error<ValueError>(
      [&] { vmap(f, none)(zeros({3}), zeros({3})); },
      {"in_axes = none gives no argument a batch dim", "args[0] of type f32[3]"});
  expect_error<ValueError>(
      [&] {
        vmap(f, {none, none})(zeros({3}), 1.f);
      },
      {"in_axes = {none, none} gives no argument a batch dim"});
  expect_error<ValueError>([&] { vmap([] { return Array(1); })(); },
                           {"gives no argument a batch dim"});
}

TEST(VmapErrors, ResultThatDiffersWhereNoneIsGiven) {
  const auto f = [](Array a) { return std::pair{Array(1.f), a * 2.f}; };
  expect_error<ValueError>(
      [&] {
        vmap(f, 0, {none, none})(zeros({3}));
      },
      {"the result[1]", "out_axes[1] = none", "has a batch dim", "of size 3"});
}

TEST(VmapErrors, OfTheFunctionSpeakOfOneExample) {
  const auto f = [](Array a, Array b) { return matmul(a, b); };
  expect_error<ValueError>(
      [&] {
        vmap(f)(zeros({5, 2, 3}), zeros({5, 4, 2}));
      },
      {"f32[2,3]", "f32[4,2]"});
  expect_error<ValueError>(
      [&] {
        vmap([](Array a) { return slice(a, {0}, {9}); })(zeros({5, 2}));
      },
      {"slice", "f32[2]", "vmap_test.cpp"});
  expect_error<ValueError>([&] { vmap([](Array a) { return a; })(Array()); },
                           {"vmap: args[0]", "empty Array"});
}

TEST(VmapErrors, AFailedCallLeavesArraysUsable) {
  const Array x = values({3, 2});
  EXPECT_THROW(vmap([](Array a) -> Array { throw std::runtime_error(a.ndim() ? "it" : ""); })(x),
               std::runtime_error);
  EXPECT_EQ(array_diff(x + x, vmap([](Array a) { return a + a; })(x), 0), "");
}

}  // namespace
}  // namespace shmap
