// shmap-test: devices
// Gradients of mapped functions, typed and as in pmap: equal numbers, and as much communication as
// each must have (JEP 17111).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/communication.h"
#include "tests/support/error_text.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using test::collectives_in;
using test::Communication;
using test::expect_collectives;
using test::expect_same_under_jit;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Names = std::vector<std::string>;

constexpr ShardMapOptions typed{};
constexpr ShardMapOptions legacy{.check_vma = false};

Mesh mesh8() { return make_mesh({8}, {"i"}); }

// The transpose of a function of one array, as a function.
template <class F>
auto transpose_of(F f, ShapedArray type) {
  return [=](Array ct) {
    auto [out] = linear_transpose(f, type)(ct);
    return out;
  };
}

template <class F, class... T>
std::string text_of(const F& f, const T&... types) {
  return to_string(make_jaxpr(f)(types...));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

void expect_near(const Array& got, const Array& want, float tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  const Floats a = got.to_vector<float>(), b = want.to_vector<float>();
  for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], tolerance) << "element " << k;
}

// ---- the five examples of JEP 17111

// g sums a block, so that its transpose has an op of its own.
auto example1(ShardMapOptions options) {
  return shard_map([](Array x) { return psum(sum(x), "i"); }, mesh8(), P("i"), P(), options);
}

TEST(Gradient, Example1FanInTransposesToACast) {
  const ShapedArray x({24, 4}, f32), y({}, f32);
  const auto t = transpose_of(example1(typed), x);
  EXPECT_EQ(text_of(t, y),
            "{ lambda a:f32[] .\n"
            "  let b:f32[24,4] = shard_map[check_vma=True\n"
            "                              in_specs=(P(),)\n"
            "                              jaxpr={ lambda a:f32[] .\n"
            "                                      let b:f32[]{i} = pbroadcast[axes=('i',)] a\n"
            "                                          c:f32[3,4]{i} = broadcast_in_dim"
            "[broadcast_dimensions=() shape=(3, 4)] b\n"
            "                                      in ( c ) }\n"
            "                              mesh=Mesh('i': 8)\n"
            "                              out_specs=(P('i'),)] a\n"
            "  in ( b ) }");
  EXPECT_EQ(text_of(transpose_of(t, y), x), text_of(example1(typed), x));
  EXPECT_EQ(text_of(transpose_of(transpose_of(t, y), x), y), text_of(t, y));
  expect_collectives(t, {}, full({}, 3.f));
  expect_collectives(transpose_of(example1(legacy), x), {"psum(i) 4"}, full({}, 3.f));
  EXPECT_THAT(t(full({}, 3.f)).to_vector<float>(), Each(3.f));
  EXPECT_THAT(transpose_of(example1(legacy), x)(full({}, 3.f)).to_vector<float>(), Each(3.f));
}

TEST(Gradient, Example2AMappedResultSumsOnce) {
  const auto f = [](ShardMapOptions options) {
    return shard_map([](Array x, Array y) { return psum(sum(x), "i") * y; }, mesh8(),
                     {P("i"), P("i")}, P("i"), options);
  };
  // t(f, 0) and its own transpose, with y known.
  const auto t = [f](ShardMapOptions options) {
    return [f2 = f(options)](Array y, Array zbar) {
      return transpose_of([&](Array x) { return f2(x, y); }, ShapedArray({24, 4}, f32))(zbar);
    };
  };
  const auto tt = [t](ShardMapOptions options) {
    return [t2 = t(options)](Array y, Array x) {
      return transpose_of([&](Array z) { return t2(y, z); }, ShapedArray({16}, f32))(x);
    };
  };
  const auto ttt = [tt](Array y, Array zbar) {
    return transpose_of([&](Array x) { return tt(typed)(y, x); }, ShapedArray({24, 4}, f32))(zbar);
  };
  const ShapedArray x({24, 4}, f32), y({16}, f32);
  EXPECT_EQ(collectives_in(make_jaxpr(f(typed))(x, y)), Names{"psum(i) 4"});
  EXPECT_EQ(collectives_in(make_jaxpr(tt(typed))(y, x)), Names{"psum(i) 4"});
  EXPECT_EQ(text_of(ttt, y, y), text_of(t(typed), y, y));
  const std::string text = text_of(t(typed), y, y);
  const std::size_t product = text.find(":f32[2]{i} = mul "), psum = text.find(" = psum["),
                    cast = text.find(" = pbroadcast[");
  EXPECT_TRUE(product < psum && psum < cast && cast != std::string::npos) << text;
  EXPECT_EQ(count_of(text, " = psum["), 1u) << text;

  const Array ys = arange(16), ones_like_z = ones({16});
  expect_collectives(t(typed), {"psum(i) 4"}, ys, ones_like_z);
  // The psum's cotangent is summed, and nothing else: no spec leaves the axis out.
  expect_collectives(t(legacy), {"psum(i) 4"}, ys, ones_like_z);
  EXPECT_THAT(t(typed)(ys, ones_like_z).to_vector<float>(), Each(120.f));
  EXPECT_THAT(t(legacy)(ys, ones_like_z).to_vector<float>(), Each(120.f));
}

TEST(Gradient, Example3TheCursedIdentityStaysEmpty) {
  const auto f = shard_map([](Array x) { return x; }, mesh8(), P(), P());
  const ShapedArray x({3}, f32);
  const auto t = transpose_of(f, x);
  const auto tt = transpose_of(t, x);
  const auto ttt = transpose_of(tt, x);
  EXPECT_THAT(text_of(f, x), HasSubstr("jaxpr={ lambda a:f32[3] .\n"));
  for (const std::string& text : {text_of(t, x), text_of(tt, x), text_of(ttt, x)})
    EXPECT_EQ(text, text_of(f, x));
  expect_collectives(ttt, {}, arange(3));

  // As in pmap, it grows by a division and a sum with each transposition.
  const auto g = shard_map([](Array v) { return v; }, mesh8(), P(), P(), legacy);
  const auto s = transpose_of(g, x);
  const auto ss = transpose_of(s, x);
  const auto sss = transpose_of(ss, x);
  expect_collectives(s, {"psum(i) 12"}, arange(3));
  expect_collectives(ss, {"psum(i) 12", "psum(i) 12"}, arange(3));
  EXPECT_EQ(count_of(text_of(ss, x), " 8.0\n"), 2u) << text_of(ss, x);
  EXPECT_GT(collectives_in(make_jaxpr(sss)(x)).size(), 2u);
  EXPECT_EQ(sss(arange(3)).to_vector<float>(), (Floats{0, 1, 2}));
}

TEST(Gradient, Example4AnInvariantGatherTransposesToASlice) {
  const auto f = [](ShardMapOptions options) {
    return shard_map([](Array x) { return all_gather_invariant(x, "i", {.tiled = true}); }, mesh8(),
                     P("i"), P(), options);
  };
  const ShapedArray x({8}, f32);
  const auto t = transpose_of(f(typed), x);
  EXPECT_THAT(text_of(t, x), HasSubstr("lambda a:f32[8] .\n"));
  EXPECT_THAT(text_of(t, x), HasSubstr("b:f32[1]{i} = pscatter["));
  EXPECT_EQ(text_of(transpose_of(t, x), x), text_of(f(typed), x));
  expect_collectives(t, {}, arange(8));
  const auto old = transpose_of(f(legacy), x);
  expect_collectives(old, {"psum_scatter(i) 32"}, arange(8));
  EXPECT_THAT(text_of(old, x), HasSubstr(" = div a 8.0\n"));
  EXPECT_EQ(t(arange(8)).to_vector<float>(), arange(8).to_vector<float>());
  EXPECT_EQ(old(arange(8)).to_vector<float>(), arange(8).to_vector<float>());

  // The better form has no collective at all.
  const auto better = shard_map([](Array v) { return v; }, mesh8(), P("i"), P("i"));
  expect_collectives(better, {}, arange(8));
  expect_collectives(transpose_of(better, x), {}, arange(8));
  EXPECT_EQ(text_of(transpose_of(better, x), x), text_of(better, x));
}

TEST(Gradient, Example5AGatherToAMappedResultScattersItsSum) {
  const auto f = [](ShardMapOptions options) {
    return shard_map([](Array x, Array y) { return all_gather(x, "i", {.tiled = true}) * y; },
                     mesh8(), {P("i"), P("i")}, P("i"), options);
  };
  const auto t = [f](ShardMapOptions options) {
    return [f5 = f(options)](Array y, Array wbar) {
      return transpose_of([&](Array x) { return f5(x, y); }, ShapedArray({8}, f32))(wbar);
    };
  };
  const ShapedArray y({64}, f32);
  const std::string text = text_of(t(typed), y, y);
  EXPECT_THAT(text, HasSubstr("lambda a:f32[8]{i}, b:f32[8]{i} .\n"));
  const std::size_t product = text.find(":f32[8]{i} = mul "),
                    scatter = text.find(":f32[1]{i} = psum_scatter[");
  EXPECT_TRUE(product < scatter && scatter != std::string::npos) << text;
  const Array ys = arange(64), w = ones({64});
  expect_collectives(t(typed), {"psum_scatter(i) 32"}, ys, w);
  expect_collectives(t(legacy), {"psum_scatter(i) 32"}, ys, w);
  const Floats want = sum(reshape(ys, {8, 8}), 0).to_vector<float>();
  EXPECT_EQ(t(typed)(ys, w).to_vector<float>(), want);
  EXPECT_EQ(t(legacy)(ys, w).to_vector<float>(), want);
}

// ---- a data-parallel loss

struct Params {
  Array w0, b0, w1, b1;
};

// The mean over the batch; `pmean` over the mesh where it is mapped.
Array local_loss(const Params& p, const std::pair<Array, Array>& batch) {
  const auto& [inputs, targets] = batch;
  const Array hidden = tanh(matmul(inputs, p.w0) + p.b0);
  return mean(sum(square(matmul(hidden, p.w1) + p.b1 - targets), 1));
}

auto data_parallel_loss(ShardMapOptions options) {
  return shard_map(
      [](Params p, std::pair<Array, Array> batch) { return pmean(local_loss(p, batch), "batch"); },
      make_mesh({8}, {"batch"}), {P(), P("batch", none)}, P(), options);
}

Params some_params() {
  const auto wave = [](Shape shape, float step) {
    return reshape(sin(arange(shape.num_elements()) * step), shape);
  };
  return {wave({3, 5}, .7f), wave({5}, .3f), wave({5, 2}, 1.1f), wave({2}, .9f)};
}
std::pair<Array, Array> some_batch() {
  return {reshape(cos(arange(48) * .37f), {16, 3}), reshape(sin(arange(32) * .53f), {16, 2})};
}

TEST(Gradient, ADataParallelLossSumsAScalarAndEachParameterOnce) {
  const Params p = some_params();
  const auto batch = some_batch();
  const Names forward = {"psum(batch) 4"};
  const Names each = {"psum(batch) 60", "psum(batch) 20", "psum(batch) 40", "psum(batch) 8"};
  Names both = forward;
  both.insert(both.end(), each.begin(), each.end());
  expect_collectives(data_parallel_loss(typed), forward, p, batch);
  expect_collectives(value_and_grad(data_parallel_loss(typed)), both, p, batch);
  // The cotangent of the mean is summed too.
  Names more = both;
  more.push_back("psum(batch) 4");
  expect_collectives(data_parallel_loss(legacy), forward, p, batch);
  expect_collectives(value_and_grad(data_parallel_loss(legacy)), more, p, batch);

  // The backward pass alone: none for the mean.
  auto [loss, pullback] = vjp(data_parallel_loss(typed), p, batch);
  reset_counters();
  const auto [p_bar, batch_bar] = pullback(full({}, 1.f));
  EXPECT_EQ(counters().collectives, 4);
  EXPECT_EQ(batch_bar.first.shape(), (Shape{16, 3}));
}

TEST(Gradient, ADataParallelLossHasTheGradientOfOneDevice) {
  const Params p = some_params();
  const auto batch = some_batch();
  const auto [loss, want] = value_and_grad(local_loss)(p, batch);
  for (const ShardMapOptions& options : {typed, legacy}) {
    const auto f = value_and_grad(data_parallel_loss(options));
    const auto [mapped_loss, got] = f(p, batch);
    EXPECT_NEAR(mapped_loss.item<float>(), loss.item<float>(), 1e-5f);
    expect_near(got.w0, want.w0, 1e-5f);
    expect_near(got.b0, want.b0, 1e-5f);
    expect_near(got.w1, want.w1, 1e-5f);
    expect_near(got.b1, want.b1, 1e-5f);
    expect_same_under_jit(f, Communication::no_more, p, batch);
  }
}

TEST(Gradient, UnusedResultsOfTheBodyCostNothing) {
  // The second result's cotangent is zero: the backward pass has no part of it.
  const auto f = shard_map(
      [](Array w, Array x) {
        return std::pair{psum(sum(w * x), "i"), psum(sum(sin(w) * x), "i")};
      },
      mesh8(), {P(), P("i")}, std::vector<P>{P(), P()});
  const auto first = [f](Array w, Array x) { return f(w, x).first; };
  const auto [value, pullback] = vjp(first, Array(ones({3})), Array(arange(24)));
  reset_counters();
  const auto [w_bar, x_bar] = pullback(full({}, 1.f));
  EXPECT_EQ(counters().collectives, 1);
  EXPECT_EQ(w_bar.to_vector<float>(), sum(reshape(arange(24), {8, 3}), 0).to_vector<float>());
}

// ---- closures

TEST(Gradient, WhatTheBodyClosesOverHasTheGradientOfAnArgument) {
  const auto loss = [](ShardMapOptions options) {
    return [options](Array w, Array x) {
      return shard_map([w](Array b) { return psum(sum(square(w * b)), "i"); }, mesh8(), P("i"), P(),
                       options)(x);
    };
  };
  const Array x = arange(8);
  for (const ShardMapOptions& options : {typed, legacy}) {
    const auto [value, dw] = value_and_grad(loss(options))(full({}, 3.f), x);
    EXPECT_EQ(value.item<float>(), 1260.f);
    EXPECT_EQ(dw.item<float>(), 840.f);
    EXPECT_EQ(grad<1>(loss(options))(full({}, 3.f), x).to_vector<float>(),
              (Floats{0, 18, 36, 54, 72, 90, 108, 126}));
  }
  // There is one sum forward, and one for the gradient of the closed-over value.
  expect_collectives(value_and_grad(loss(typed)), {"psum(i) 4", "psum(i) 4"}, full({}, 3.f), x);
  expect_collectives(value_and_grad(loss(legacy)), {"psum(i) 4", "psum(i) 4", "psum(i) 4"},
                     full({}, 3.f), x);
  expect_same_under_jit(value_and_grad(loss(typed)), Communication::no_more, full({}, 3.f), x);
}

TEST(Gradient, AClosureOverAValueThatIsDifferentiatedToo) {
  // y depends on x, and the body closes over it; forwards twice.
  const Mesh mesh = make_mesh({2}, {"x"});
  const auto g = [mesh](Array x) {
    const Array y = sum(3.f * x);
    return shard_map([y](Array z) { return sin(y * z); }, mesh, P("x"), P("x"))(x * .01f);
  };
  const auto reference = [](Array x) { return sin(sum(3.f * x) * (x * .01f)); };
  const Array x = arange(8) * .1f, v = cos(arange(8));
  const auto derivative = [&](auto f) {
    return [f, v](Array at) { return jvp(f, std::tuple{at}, std::tuple{v}).second; };
  };
  expect_near(derivative(g)(x), derivative(reference)(x), 1e-5f);
  expect_near(derivative(derivative(g))(x), derivative(derivative(reference))(x), 1e-5f);
  const auto total = [](auto f) { return [f](Array at) { return sum(f(at)); }; };
  expect_near(grad(total(g))(x), grad(total(reference))(x), 1e-5f);
  expect_near(grad(total(derivative(g)))(x), grad(total(derivative(reference)))(x), 1e-5f);
}

// ---- gradients taken inside of a body

TEST(Gradient, InABodyAnInvariantArgumentsGradientIsSummedWhereVarianceIsChecked) {
  const auto step = [](ShardMapOptions options) {
    return shard_map(
        [](Array w, Array x) {
          const Array g = grad([x](Array v) { return sum(v * x); })(w);
          return reshape(g, {1});
        },
        mesh8(), {P(), P("i")}, options.check_vma ? P() : P("i"), options);
  };
  const Array w = full({}, 1.f), x = arange(16);
  EXPECT_EQ(step(typed)(w, x).to_vector<float>(), Floats{120});
  EXPECT_EQ(step(legacy)(w, x).to_vector<float>(), (Floats{1, 5, 9, 13, 17, 21, 25, 29}));
  expect_collectives(step(typed), {"psum(i) 4"}, w, x);
  expect_collectives(step(legacy), {}, w, x);
}

TEST(Gradient, InABodyAVaryingArgumentsGradientIsLocal) {
  const auto f = shard_map([](Array x) { return grad([](Array v) { return sum(v * v); })(x); },
                           mesh8(), P("i"), P("i"));
  expect_collectives(f, {}, arange(8));
  EXPECT_EQ(f(arange(8)).to_vector<float>(), (Floats{0, 2, 4, 6, 8, 10, 12, 14}));
  // A loss that is summed over the devices: psum's transpose is a cast.
  const auto summed =
      shard_map([](Array x) { return grad([](Array v) { return psum(sum(v * v), "i"); })(x); },
                mesh8(), P("i"), P("i"));
  EXPECT_EQ(summed(arange(8)).to_vector<float>(), (Floats{0, 2, 4, 6, 8, 10, 12, 14}));
  const auto pairs = shard_map(
      [](Array x) {
        const auto [y, dy] = jvp([](Array v) { return psum(sum(v * v), "i"); }, std::tuple{x},
                                 std::tuple{ones_like(x)});
        return dy;
      },
      mesh8(), P("i"), P());
  EXPECT_EQ(pairs(arange(8)).item<float>(), 56.f);
}

TEST(Gradient, InAndOutsideOfTheBodyOneTrainingStepIsTheSame) {
  const Params p = some_params();
  const auto batch = some_batch();
  const auto inside = shard_map(
      [](Params q, std::pair<Array, Array> b) {
        return grad([&b](Params r) { return pmean(local_loss(r, b), "batch"); })(q);
      },
      make_mesh({8}, {"batch"}), {P(), P("batch", none)}, P());
  const Params got = inside(p, batch), want = grad(data_parallel_loss(typed))(p, batch);
  expect_near(got.w0, want.w0, 1e-6f);
  expect_near(got.b1, want.b1, 1e-6f);
}

// ---- rows of JAX's tests

TEST(Gradient, ThroughAnInvariantGather) {
  const auto f = shard_map([](Array x) { return all_gather_invariant(x, "x", {.tiled = true}); },
                           make_mesh({4}, {"x"}), P("x"), P());
  const Array g = grad([f](Array x) { return sum(f(x)); })(arange(8));
  EXPECT_EQ(g.to_vector<float>(), Floats(8, 1));
  EXPECT_EQ(to_string(g.sharding().spec()), "P('x')");
  expect_collectives(grad([f](Array x) { return sum(sin(f(x))); }), {"all_gather_invariant(x) 8"},
                     arange(8));
}

TEST(Gradient, ThroughAnAllToAll) {
  const auto f = shard_map([](Array x) { return all_to_all(x, "x", 1, 0, {.tiled = true}); },
                           make_mesh({4}, {"x"}), P("x", none), P(none, "x"));
  const auto [loss, g] =
      value_and_grad([f](Array x) { return 2.f * sum(f(x)); })(reshape(arange(64), {8, 8}));
  EXPECT_EQ(loss.item<float>(), 4032.f);
  EXPECT_EQ(g.to_vector<float>(), Floats(64, 2));
}

TEST(Gradient, FanOut) {
  const auto f =
      shard_map([](Array x) { return pbroadcast(x, "x"); }, make_mesh({4}, {"x"}), P(), P("x"));
  EXPECT_EQ(f(arange(8)).shape(), Shape{32});
  EXPECT_EQ(grad([f](Array x) { return sum(f(x)); })(arange(8)).to_vector<float>(), Floats(8, 4));
}

TEST(Gradient, ForwardsOfSinesOnATwoAxisMesh) {
  const auto f = shard_map([](Array x) { return sin(cos(x)); }, make_mesh({2, 2}, {"x", "y"}),
                           P("x", "y"), P("x", "y"));
  const Array x = reshape(arange(16, f64) * .1, {4, 4}), v = reshape(cos(arange(16, f64)), {4, 4});
  const auto d = [](auto g, Array at, Array t) {
    return jvp(g, std::tuple{at}, std::tuple{t}).second;
  };
  const auto first = [f, d, v](Array at) { return d(f, at, v); };
  const auto second = [first, d, v](Array at) { return d(first, at, v); };
  const double h = 1e-5;
  const auto expect_close = [&](const Array& got, auto g) {
    const Array want = (g(x + v * h) - g(x - v * h)) / (2 * h);
    const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
    for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-8) << k;
  };
  expect_close(first(x), f);
  expect_close(second(x), first);
  EXPECT_EQ(linearize(f, x).second(v).to_vector<double>(), first(x).to_vector<double>());
  expect_same_under_jit(second, Communication::no_more, x);
}

TEST(Gradient, ALinearMapMayBeMadeOfValuesAroundIt) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto f = [mesh](Array x) {
    return shard_map([](Array y) { return sin(y) * psum(psum(sum(sin(y)), "i"), "j") / 2.f; }, mesh,
                     P("i"), P("i"))(x);
  };
  const Array x = arange(8);
  const auto [y, f_lin] = linearize(f, x);
  // d(sin(x) S)/dt along x = cos(x) x S + sin(x) sum(cos(x) x)
  expect_near(y, sin(x) * sum(sin(x)), 1e-4f);
  expect_near(f_lin(x), cos(x) * x * sum(sin(x)) + sin(x) * sum(cos(x) * x), 1e-4f);
}

}  // namespace
}  // namespace shmap
