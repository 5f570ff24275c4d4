// shmap-test: devices
// Device variance under differentiation: what each collective transposes to, the casts that are
// inserted and how often, errors of the wrong variance, and the specs of residuals (JEP 17111).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "shmap/shmap.h"
#include "tests/support/communication.h"
#include "tests/support/error_text.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using test::collectives_in;
using test::expect_collectives;
using test::expect_error;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;
using Names = std::vector<std::string>;
using Body = std::function<Array(Array)>;

constexpr ShardMapOptions strict{.auto_pbroadcast = false};
constexpr ShardMapOptions legacy{.check_vma = false};

Mesh mesh81() { return make_mesh({8, 1}, {"i", "j"}); }

template <class F, class... T>
std::string text_of(const F& f, const T&... types) {
  return to_string(make_jaxpr(f)(types...));
}

// The transposed body of a function of one block, as text.
std::string transposed_text(const Body& body, const P& in, const P& out, const ShapedArray& x,
                            ShardMapOptions options = {}) {
  const auto f =
      shard_map([body](Array b) { return body(b); }, make_mesh({8}, "i"), in, out, options);
  const ShapedArray y = make_jaxpr(f)(x).out_types()[0];
  return text_of(
      [&](Array ct) {
        auto [x_bar] = linear_transpose(f, x)(ct);
        return x_bar;
      },
      y);
}

// ---- the typing table

TEST(GradientTypes, WhatEachCollectiveTransposesTo) {
  struct Row {
    const char* name;
    Body body;
    P in, out;
    std::int64_t extent;
    const char *transposed, *untracked;
  };
  const P V("i"), I;
  for (const Row& r : {
           Row{"psum", [](Array x) { return psum(x, "i"); }, V, I, 24,
               "b:f32[3]{i} = pbroadcast[axes=('i',)] a\n", ":f32[3] = psum[axes=('i',)] b\n"},
           Row{"pbroadcast", [](Array x) { return pbroadcast(x, "i"); }, I, V, 3,
               "b:f32[3] = psum[axes=('i',)] a\n", "b:f32[3] = psum[axes=('i',)] a\n"},
           Row{"all_to_all", [](Array x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); }, V,
               V, 128, "b:f32[16]{i} = all_to_all[", "b:f32[16]{i} = all_to_all["},
           Row{"psum_scatter", [](Array x) { return psum_scatter(x, "i", {.tiled = true}); }, V, V,
               128, "b:f32[16]{i} = all_gather[", "b:f32[16]{i} = all_gather["},
           Row{"all_gather", [](Array x) { return all_gather(x, "i", {.tiled = true}); }, V, V, 16,
               "b:f32[2]{i} = psum_scatter[", "b:f32[2]{i} = psum_scatter["},
           Row{"pscatter", [](Array x) { return pscatter(x, "i", {.tiled = true}); }, I, V, 16,
               "b:f32[16] = all_gather_invariant[", ":f32[16] = psum[axes=('i',)]"},
           Row{"all_gather_invariant",
               [](Array x) { return all_gather_invariant(x, "i", {.tiled = true}); }, V, I, 16,
               "b:f32[2]{i} = pscatter[", ":f32[2]{i} = psum_scatter["},
           Row{"ppermute",
               [](Array x) {
                 return ppermute(x, "i", {{0, 1}, {1, 2}});
               },
               V, V, 16, "perm=((1, 0), (2, 1))", "perm=((1, 0), (2, 1))"},
           Row{"pswapaxes", [](Array x) { return pswapaxes(x, "i", 0); }, V, V, 64,
               "b:f32[8]{i} = all_to_all[", "b:f32[8]{i} = all_to_all["},
           Row{"pmean", [](Array x) { return pmean(x, "i"); }, V, I, 24,
               ":f32[3]{i} = pbroadcast[axes=('i',)]", " = psum[axes=('i',)]"},
       }) {
    SCOPED_TRACE(r.name);
    const ShapedArray x({r.extent}, f32);
    EXPECT_THAT(transposed_text(r.body, r.in, r.out, x), HasSubstr(r.transposed));
    EXPECT_THAT(transposed_text(r.body, r.in, r.out, x, legacy), HasSubstr(r.untracked));
  }
}

TEST(GradientTypes, WhatDoesNotCommunicateForwardsOrBackwards) {
  struct Row {
    Body body;
    P in, out;
    std::int64_t extent;
    Names forward, backward;
  };
  const P V("i"), I;
  for (const Row& r : {
           Row{[](Array x) { return psum(x, "i"); }, V, I, 24, {"psum(i) 12"}, {}},
           Row{[](Array x) { return pbroadcast(x, "i"); }, I, V, 3, {}, {"psum(i) 12"}},
           Row{[](Array x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); },
               V,
               V,
               128,
               {"all_to_all(i) 64"},
               {"all_to_all(i) 64"}},
           Row{[](Array x) { return psum_scatter(x, "i", {.tiled = true}); },
               V,
               V,
               128,
               {"psum_scatter(i) 64"},
               {"all_gather(i) 8"}},
           Row{[](Array x) { return all_gather(x, "i", {.tiled = true}); },
               V,
               V,
               16,
               {"all_gather(i) 8"},
               {"psum_scatter(i) 64"}},
           Row{[](Array x) { return pscatter(x, "i", {.tiled = true}); },
               I,
               V,
               16,
               {},
               {"all_gather_invariant(i) 8"}},
           Row{[](Array x) { return all_gather_invariant(x, "i", {.tiled = true}); },
               V,
               I,
               16,
               {"all_gather_invariant(i) 8"},
               {}},
           Row{[](Array x) { return broadcast_from(x, "i", 3); },
               V,
               I,
               16,
               {"broadcast_from(i) 8"},
               {}},
       }) {
    const auto f = shard_map([&r](Array b) { return r.body(b); }, mesh81(), r.in, r.out);
    const ShapedArray type({r.extent}, f32);
    const Array x = arange(r.extent);
    expect_collectives(f, r.forward, x);
    const Array y = f(x);
    expect_collectives(
        [&](Array ct) {
          auto [x_bar] = linear_transpose(f, type)(ct);
          return x_bar;
        },
        r.backward, y);
  }
}

// A group's sum is a value of that group, and so is its cotangent.
TEST(GradientTypes, GroupedSumsTransposeToGroupedSums) {
  const Groups halves = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  const auto text = [&](const Body& body, std::int64_t extent) {
    return transposed_text(body, P("i"), P("i"), ShapedArray({extent}, f32));
  };
  EXPECT_THAT(text([&](Array x) { return psum(x, "i", {.axis_index_groups = halves}); }, 24),
              HasSubstr("b:f32[3]{i} = psum[axes=('i',) axis_index_groups="));
  EXPECT_THAT(text(
                  [&](Array x) {
                    return all_gather_invariant(x, "i",
                                                {.tiled = true, .axis_index_groups = halves});
                  },
                  16),
              HasSubstr("b:f32[2]{i} = psum_scatter["));
}

// ---- casts that are inserted

TEST(GradientTypes, ACastIsInsertedBeforeTheOpThatNeedsIt) {
  const auto f = shard_map([](Array x, Array y) { return x * y; }, mesh81(), {P(), P("i")}, P("i"));
  const std::string text = text_of(f, ShapedArray({2}, f32), ShapedArray({16}, f32));
  EXPECT_THAT(text, HasSubstr("let c:f32[2]{i} = pbroadcast[axes=('i',)] a\n"));
  EXPECT_THAT(text, HasSubstr("d:f32[2]{i} = mul c b\n"));
}

// x is used three times beside varying values: one cast, so one sum in the backward pass.
TEST(GradientTypes, OneCastAValueSoOneSumInTheBackwardPass) {
  const auto body = [](Array w, Array x) {
    return psum(sum(w * x + sin(x) * w - w / (x + 2.f)), "i");
  };
  const Array w = arange(3) + 1.f, x = arange(24);
  const auto f = shard_map(body, mesh81(), {P(), P("i")}, P());
  const std::string text = text_of(f, w, x);
  const std::size_t cast = text.find("= pbroadcast[");
  EXPECT_NE(cast, std::string::npos) << text;
  EXPECT_EQ(text.find("= pbroadcast[", cast + 1), std::string::npos) << text;
  const Names want = {"psum(i) 4", "psum(i) 12"};
  expect_collectives(value_and_grad(f), want, w, x);
  // The same for programs that jit and make_jaxpr keep.
  expect_collectives(value_and_grad(jit(f)), want, w, x);
  expect_collectives(jit(value_and_grad(f)), want, w, x);
  // The value is captured instead of given.
  const auto closed = [body](Array v, Array at) {
    return shard_map([v, body](Array b) { return body(v, b); }, mesh81(), P("i"), P())(at);
  };
  expect_collectives(value_and_grad(closed), want, w, x);
  // The same inside of a body.
  const auto inside =
      shard_map([body](Array v, Array b) { return grad([&](Array u) { return body(u, b); })(v); },
                mesh81(), {P(), P("i")}, P());
  EXPECT_THAT(collectives_in(make_jaxpr(inside)(w, x)), UnorderedElementsAreArray(want));
}

// Cast over different axes by different ops: one cast for each set of axes, of each value.
TEST(GradientTypes, OneCastForEachSetOfAxes) {
  const auto f = shard_map(
      [](Array w, Array x, Array y) {
        const Array a = sum(w * x), b = sum(w * y), c = sum(sin(w) * x);
        return psum(a * b * c, {"i", "j"});
      },
      make_mesh({4, 2}, {"i", "j"}), {P(), P("i"), P("j")}, P());
  expect_collectives(value_and_grad(f),
                     {"psum(i,j) 4",                           // the loss
                      "psum(i) 12", "psum(j) 12",              // w
                      "psum(i) 12",                            // sin(w)
                      "psum(j) 4", "psum(i) 4", "psum(j) 4"},  // a, b, c
                     arange(3) + 1.f, arange(12), arange(6));
}

// A bias is cast before it is made as large as the batch: backwards, the sum over the devices is of
// the bias, and not of the batch.
TEST(GradientTypes, WhatIsBroadcastIsCastBefore) {
  const auto body = [](Array x, Array b) { return psum(sum(sin(x + b) * b), "i"); };
  const auto f = shard_map(body, mesh81(), {P("i"), P()}, P());
  const Array x = reshape(arange(96), {16, 6}), b = arange(6);
  const std::string text = text_of(f, x, b);
  const std::size_t cast = text.find(":f32[6]{i} = pbroadcast["),
                    wide = text.find(":f32[2,6]{i} = broadcast_in_dim[");
  EXPECT_TRUE(cast < wide && wide != std::string::npos) << text;
  EXPECT_EQ(text.find("f32[2,6] "), std::string::npos) << text;
  expect_collectives(value_and_grad<1>(f), {"psum(i) 4", "psum(i) 24"}, x, b);
  // If the broadcast value itself is also a result, both are made.
  const auto both = shard_map(
      [](Array x, Array b) {
        const Array wide = broadcast_to(b, {2, 6});
        return std::pair{sum(x * wide, 1), sum(sin(wide))};
      },
      mesh81(), {P("i"), P()}, {P("i"), P()});
  EXPECT_EQ(both(x, b).first.shape(), Shape{16});
  EXPECT_THAT(text_of(both, x, b), HasSubstr(":f32[2,6] = broadcast_in_dim["));
  test::expect_same_under_jit(both, test::Communication::same, x, b);
}

TEST(GradientTypes, WithoutInsertionTheUserSaysWhereTheBackwardPassSums) {
  const Array w = arange(3) + 1.f, x = arange(24);
  const auto once = shard_map(
      [](Array v, Array b) {
        const Array u = pbroadcast(v, "i");
        return psum(sum(u * b + sin(u) * b), "i");
      },
      mesh81(), {P(), P("i")}, P(), strict);
  const auto twice = shard_map(
      [](Array v, Array b) {
        return psum(sum(pbroadcast(v, "i") * b + sin(pbroadcast(v, "i")) * b), "i");
      },
      mesh81(), {P(), P("i")}, P(), strict);
  const Names one = {"psum(i) 12", "psum(i) 4"}, two = {"psum(i) 12", "psum(i) 12", "psum(i) 4"};
  expect_collectives(value_and_grad(once), one, w, x);
  EXPECT_EQ(collectives_in(make_jaxpr(value_and_grad(twice))(w, x)), two);
  const auto inserted =
      shard_map([](Array v, Array b) { return psum(sum(v * b + sin(v) * b), "i"); }, mesh81(),
                {P(), P("i")}, P());
  const std::vector<float> want = grad(inserted)(w, x).to_vector<float>();
  for (const Array& got : {grad(once)(w, x), grad(twice)(w, x)}) {
    const std::vector<float> values = got.to_vector<float>();
    for (std::size_t k = 0; k < want.size(); ++k) EXPECT_NEAR(values[k], want[k], 1e-3f);
  }
}

// ---- errors

TEST(GradientTypes, WrongVarianceIsAnErrorUnderEveryTransform) {
  const Array w = arange(3), x = arange(24);
  const auto mixed = [&](const auto& transform) {
    return [&, transform] {
      transform(shard_map([](Array v, Array b) { return psum(sum(v * b), "i"); }, mesh81(),
                          {P(), P("i")}, P(), strict));
    };
  };
  const auto each = [&](const auto& transform) {
    expect_error<TypeError>(mixed(transform), {"mul", "f32[3]{i}", "pbroadcast"});
  };
  each([&](auto f) { f(w, x); });
  each([&](auto f) { grad(f)(w, x); });
  each([&](auto f) { jvp(f, std::tuple{w, x}, std::tuple{w, x}); });
  each([&](auto f) { linearize(f, w, x); });
  each([&](auto f) { jit(grad(f))(w, x); });
  each([&](auto f) { make_jaxpr(grad(f))(w, x); });

  const auto cast = [&](const auto& transform) {
    return [&, transform] {
      transform(shard_map([](Array b) { return psum(sum(pbroadcast(b, "i")), "i"); }, mesh81(),
                          P("i"), P()));
    };
  };
  const auto casts = [&](const auto& transform) {
    expect_error<TypeError>(cast(transform), {"pbroadcast over 'i'", "varies over 'i' already"});
  };
  casts([&](auto f) { f(x); });
  casts([&](auto f) { grad(f)(x); });
  casts([&](auto f) { jvp(f, std::tuple{x}, std::tuple{x}); });
  casts([&](auto f) { make_jaxpr(grad(f))(x); });
}

TEST(GradientTypes, ResultsThatVaryMoreThanTheirSpecAreRefusedUnderEveryTransform) {
  const Array x = arange(8);
  const auto f = shard_map([](Array b) { return sum(2.f * b); }, mesh81(), P("i"), P());
  expect_error<ValueError>([&] { f(x); }, {"statically inferred"});
  expect_error<ValueError>([&] { grad(f)(x); }, {"statically inferred"});
  expect_error<ValueError>([&] { jvp(f, std::tuple{x}, std::tuple{x}); }, {"statically inferred"});
  expect_error<ValueError>([&] { linear_transpose(f, x)(full({}, 1.f)); }, {"statically inferred"});
}

TEST(GradientTypes, InABodyCotangentsVaryAsTheirValuesDo) {
  const auto run = [](const auto& body) {
    return shard_map(body, mesh81(), {P(), P("i")}, P("i"))(arange(2), arange(16));
  };
  // A value that varies less is cast; sin's result is invariant, and its cotangent may not vary.
  const Array cast = run([](Array, Array x) {
    auto [y, pullback] = vjp([](Array v) { return sin(v); }, x);
    return std::get<0>(pullback(ones({2})));
  });
  EXPECT_EQ(cast.shape(), Shape{16});
  expect_error<TypeError>(
      [&] {
        run([](Array w, Array x) {
          auto [y, pullback] = vjp([](Array v) { return sin(v); }, w);
          return std::get<0>(pullback(x)) + x;
        });
      },
      {"vjp: the cotangent", "f32[2]{i}", "f32[2]", "psum"});
  expect_error<TypeError>(
      [&] {
        run([](Array w, Array x) {
          return jvp([](Array v) { return sin(v); }, std::tuple{w}, std::tuple{x}).second;
        });
      },
      {"jvp: tangents", "f32[2]{i}", "f32[2]"});
}

// ---- residuals

// The in_specs of the last shard_map in the program of f's linear part.
template <class F>
std::string linear_specs(const F& f, const ShapedArray& type) {
  const auto g = [f](Array x) {
    auto [y, f_lin] = linearize(f, x);
    return std::pair{y, f_lin(x)};
  };
  const std::string text = text_of(g, type);
  const std::size_t at = text.rfind("in_specs=");
  return text.substr(at, text.find('\n', at) - at);
}

TEST(GradientTypes, ResidualsHaveTheSpecsThatTheirVarianceImplies) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto specs = [&](auto body, P in, P out) {
    return linear_specs(shard_map(body, mesh, in, out), ShapedArray({8}, f32));
  };
  // Residuals first, then the tangent.
  EXPECT_EQ(specs([](Array x) { return sin(x); }, P(), P()), "in_specs=(P(), P())");
  EXPECT_EQ(specs([](Array x) { return sin(x); }, P("i"), P("i")), "in_specs=(P('i'), P('i'))");
  EXPECT_EQ(specs([](Array x) { return sin(x); }, P("j"), P("j")), "in_specs=(P('j'), P('j'))");
  EXPECT_EQ(specs([](Array x) { return sin(x); }, P(axes("j", "i")), P(axes("j", "i"))),
            "in_specs=(P(('i', 'j')), P(('j', 'i')))");
  // A varying scalar is passed as a vector with one element, an invariant one as a scalar.
  EXPECT_EQ(specs([](Array x) { return psum(sin(sum(x)), "i"); }, P("i"), P()),
            "in_specs=(P('i'), P('i'))");
  EXPECT_EQ(specs([](Array x) { return sin(psum(sum(x), "i")); }, P("i"), P()),
            "in_specs=(P(), P('i'))");
  // Linear: none.
  EXPECT_EQ(specs([](Array x) { return psum(x, "i") * 2.f; }, P("i"), P()), "in_specs=(P('i'),)");
}

TEST(GradientTypes, ResidualsOfEveryKindInOneBody) {
  const auto f = [](ShardMapOptions options) {
    return shard_map(
        [](Array w, Array x) {
          const Array scalar = sin(sum(x));                   // varies, of no dim
          const Array invariant = cos(w);                     // does not vary
          const Array total = exp(psum(sum(x), "i") * .01f);  // a scalar, does not vary
          return psum(sum(invariant * square(x)) * scalar * total, "i");
        },
        mesh81(), {P(), P("i")}, P(), options);
  };
  const auto reference = [](Array w, Array x) {
    const Array blocks = reshape(x, {8, 3});
    return sum(sum(cos(w) * square(blocks), 1) * sin(sum(blocks, 1)) * exp(sum(x) * .01f));
  };
  const Array w = arange(3) * .3f, x = sin(arange(24));
  const auto want = grad<0, 1>(reference)(w, x);
  const auto expect_close = [](const Array& a, const Array& b) {
    const auto p = a.to_vector<float>(), q = b.to_vector<float>();
    ASSERT_EQ(p.size(), q.size());
    for (std::size_t k = 0; k < p.size(); ++k) EXPECT_NEAR(p[k], q[k], 1e-4f) << k;
  };
  for (const ShardMapOptions& options : {ShardMapOptions{}, legacy}) {
    const auto got = grad<0, 1>(f(options))(w, x);
    expect_close(std::get<0>(got), std::get<0>(want));
    expect_close(std::get<1>(got), std::get<1>(want));
    const auto under_jit = jit(grad<0, 1>(f(options)))(w, x);
    expect_close(std::get<0>(under_jit), std::get<0>(want));
    expect_close(std::get<1>(under_jit), std::get<1>(want));
  }
  // The residuals stay where they are: nothing is copied between the passes.
  const auto g = shard_map([](Array b) { return psum(sum(sin(b)) * cos(sum(b)), "i"); }, mesh81(),
                           P("i"), P());
  const Array placed = device_put(x, NamedSharding(mesh81(), P("i")));
  g(placed).block_until_ready();
  reset_counters();
  auto [y, pullback] = vjp(g, placed);
  auto [x_bar] = pullback(full({}, 1.f));
  EXPECT_EQ(to_string(x_bar.sharding().spec()), "P('i')");
  EXPECT_EQ(counters().collectives, 1);
}

}  // namespace
}  // namespace shmap
