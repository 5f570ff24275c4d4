// shmap-test: devices
// Matrix products with the operations after them: which equations become one, which stay, and that
// jit, which merges them on GPUs, gives the results of the operations one by one.
#include "core/compiler/fusion/fuse_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/compiler/passes/simplify.h"
#include "core/ops/product.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using testing::ElementsAre;
using Names = std::vector<std::string>;

JaxprRef fused(const Jaxpr& jaxpr, const detail::MeshImpl& mesh) {
  const JaxprRef made = fuse_products(*simplify(jaxpr), mesh);
  typecheck_jaxpr(*made);
  return made;
}
template <class F, class... A>
JaxprRef fused(F f, const A&... args) {
  return fused(*make_jaxpr(f)(args...).impl().jaxpr, *detail::MeshImpl::default_device());
}

// The names of the equations' primitives.
Names names(const Jaxpr& j) {
  Names out;
  for (const Eqn& e : j.eqns) out.push_back(e.primitive->name);
  return out;
}
template <class F, class... A>
Names names_of(F f, const A&... args) {
  return names(*fused(f, args...));
}
const ProductParams& params_of(const Jaxpr& j, std::size_t e = 0) {
  return params_as<ProductParams>(*j.eqns.at(e).params);
}

ShapedArray type(Shape shape, DType dtype = f32) { return {shape, dtype, false, AxisSet()}; }
const ShapedArray kX = type({4, 8}), kW = type({8, 16}), kB = type({16}), kY = type({4, 16});

TEST(FuseProducts, ABiasForEachColumn) {
  const auto f = [](Array x, Array w, Array b) { return matmul(x, w) + b; };
  const JaxprRef j = fused(f, kX, kW, kB);
  EXPECT_THAT(names(*j), ElementsAre("product"));
  EXPECT_TRUE(params_of(*j).bias);
  EXPECT_EQ(params_of(*j).activation, Activation::none);
  EXPECT_EQ(to_string(*j->eqns[0].params), "bias=True dimension_numbers=(((1,), (0,)), ((), ()))");
  for (DType t : {f16, bf16}) {
    EXPECT_THAT(names_of(f, type({4, 8}, t), type({8, 16}, t), type({16}, t)),
                ElementsAre("product"));
  }
  EXPECT_THAT(names_of(f, type({2, 4, 8}), kW, kB), ElementsAre("product"));
  EXPECT_THAT(names_of(f, kX, kW, type({1, 16})), ElementsAre("product"));
}

TEST(FuseProducts, OtherTermsThatRepeatStay) {
  const auto f = [](Array x, Array w, Array b) { return matmul(x, w) + b; };
  EXPECT_THAT(names_of(f, kX, kW, type({4, 1})), testing::Not(testing::Contains("product")));
  EXPECT_THAT(names_of(f, kX, kW, type({1, 1})), testing::Not(testing::Contains("product")));
  EXPECT_THAT(names_of([](Array x, Array w) { return matmul(x, w) + 1; }, kX, kW),
              ElementsAre("dot_general", "add"));
  // A row for each item of the batch.
  EXPECT_THAT(names_of(f, type({2, 4, 8}), type({2, 8, 16}), type({2, 1, 16})),
              testing::Not(testing::Contains("product")));
}

TEST(FuseProducts, DtypesThatHaveNoBias) {
  const auto f = [](Array x, Array w, Array b) { return matmul(x, w) + b; };
  for (DType t : {i32, f64}) {
    EXPECT_THAT(names_of(f, type({4, 8}, t), type({8, 16}, t), type({16}, t)),
                ElementsAre("dot_general", "broadcast_in_dim", "add"));
  }
  EXPECT_THAT(names_of([](Array x, Array w) { return relu(matmul(x, w)); }, type({4, 8}, f64),
                       type({8, 16}, f64)),
              ElementsAre("dot_general", "le", "select_n"));
  const auto sum = [](Array x, Array w, Array c) { return c + matmul(x, w); };
  EXPECT_THAT(names_of(sum, type({4, 8}, f64), type({8, 16}, f64), type({4, 16}, f64)),
              ElementsAre("product_into"));
  EXPECT_THAT(names_of(sum, type({4, 8}, i32), type({8, 16}, i32), type({4, 16}, i32)),
              ElementsAre("dot_general", "add"));
}

TEST(FuseProducts, Activations) {
  const auto relu_of = [](Array x, Array w, Array b) { return relu(matmul(x, w) + b); };
  const auto max_of = [](Array x, Array w, Array b) { return maximum(matmul(x, w) + b, 0.f); };
  const auto gelu_of = [](Array x, Array w, Array b) { return gelu(matmul(x, w) + b); };
  for (DType t : {f32, f16, bf16}) {
    const ShapedArray x = type({4, 8}, t), w = type({8, 16}, t), b = type({16}, t);
    EXPECT_EQ(params_of(*fused(relu_of, x, w, b)).activation, Activation::relu);
    EXPECT_EQ(params_of(*fused(max_of, x, w, b)).activation, Activation::relu);
    const JaxprRef j = fused(gelu_of, x, w, b);
    EXPECT_THAT(names(*j), ElementsAre("product"));
    EXPECT_EQ(params_of(*j).activation, Activation::gelu);
  }
  EXPECT_THAT(names_of([](Array x, Array w) { return relu(matmul(x, w)); }, kX, kW),
              ElementsAre("product"));
}

TEST(FuseProducts, ActivationsOfOtherKindsStay) {
  EXPECT_THAT(
      names_of([](Array x, Array w, Array b) { return tanh(matmul(x, w) + b); }, kX, kW, kB),
      ElementsAre("product", "tanh"));
  EXPECT_THAT(names_of([](Array x, Array w) { return maximum(matmul(x, w), 1.f); }, kX, kW),
              ElementsAre("dot_general", "max"));
  EXPECT_THAT(names_of([](Array x, Array w) { return gelu(matmul(x, w), false); }, kX, kW),
              testing::Contains("dot_general"));
  // Like gelu, except for one number.
  EXPECT_THAT(names_of(
                  [](Array x, Array w) {
                    const Array y = matmul(x, w);
                    return (tanh((square(y) * y * 0.05f + y) * 0.7978845608f) + 1) * 0.5f * y;
                  },
                  kX, kW),
              testing::Contains("dot_general"));
}

TEST(FuseProducts, AProductThatIsUsedTwiceStays) {
  EXPECT_THAT(names_of(
                  [](Array x, Array w, Array b) {
                    const Array y = matmul(x, w);
                    return std::pair{y + b, y};
                  },
                  kX, kW, kB),
              ElementsAre("dot_general", "broadcast_in_dim", "add"));
  EXPECT_THAT(names_of(
                  [](Array x, Array w, Array c) {
                    const Array y = matmul(x, w);
                    return (y + c) * y;
                  },
                  kX, kW, kY),
              ElementsAre("dot_general", "add", "mul"));
  EXPECT_THAT(names_of(
                  [](Array x, Array w) {
                    const Array y = matmul(x, w);
                    return y + y;
                  },
                  kX, kW),
              ElementsAre("dot_general", "add"));
}

TEST(FuseProducts, ATermOfTheProductsType) {
  const JaxprRef j =
      fused([](Array x, Array w, Array b, Array c) { return relu(c + (matmul(x, w) + b)); }, kX, kW,
            kB, kY);
  EXPECT_THAT(names(*j), ElementsAre("product_into"));
  EXPECT_TRUE(params_of(*j).bias && params_of(*j).adds);
  EXPECT_EQ(params_of(*j).activation, Activation::relu);
  // With two products the second is added to the first.
  EXPECT_THAT(
      names_of([](Array x, Array w, Array v) { return matmul(x, w) + matmul(x, v); }, kX, kW, kW),
      ElementsAre("dot_general", "product_into"));
  // A factor cannot be added to, since it could not be overwritten.
  const ShapedArray square = type({8, 8});
  EXPECT_THAT(names_of([](Array x, Array w) { return x + matmul(x, w); }, square, square),
              ElementsAre("dot_general", "add"));
}

TEST(FuseProducts, IntoASlice) {
  const auto rows = [](Array x, Array w, Array whole) {
    return dynamic_update_slice(std::move(whole), matmul(x, w), {Array(6), Array(0)});
  };
  const JaxprRef j = fused(rows, kX, kW, type({12, 16}));
  EXPECT_THAT(names(*j), ElementsAre("product_into"));
  EXPECT_FALSE(params_of(*j).place.is_whole());
  EXPECT_FALSE(params_of(*j).adds);
  EXPECT_THAT(params_of(*j).place.offsets, ElementsAre(6 * 16));
  // Starts are clamped; a slice need not have whole rows.
  const auto corner = [](Array x, Array w, Array whole) {
    return dynamic_update_slice(std::move(whole), matmul(x, w), {Array(100), Array(3)});
  };
  EXPECT_THAT(params_of(*fused(corner, kX, kW, type({12, 20}))).place.offsets,
              ElementsAre(8 * 20 + 3));
  // A start that only the program knows.
  EXPECT_THAT(names_of(
                  [](Array x, Array w, Array whole, Array at) {
                    return dynamic_update_slice(std::move(whole), matmul(x, w), {at, Array(0)});
                  },
                  kX, kW, type({12, 16}), ShapedArray(Shape(), i32, false, AxisSet())),
              ElementsAre("dot_general", "dynamic_update_slice"));
  // Matrices whose rows are several dims of which not all are whole.
  EXPECT_THAT(names_of(
                  [](Array x, Array w, Array whole) {
                    return dynamic_update_slice(std::move(whole), matmul(x, w),
                                                {Array(0), Array(0), Array(0)});
                  },
                  type({2, 4, 8}), kW, type({3, 5, 16})),
              ElementsAre("dot_general", "dynamic_update_slice"));
}

TEST(FuseProducts, AddedToASlice) {
  const auto f = [](Array x, Array w, Array whole) {
    const std::vector<Array> at{Array(4), Array(0)};
    // By axis_index the place would be computed; a literal makes the slice static.
    Array part = dynamic_slice(whole, at, {4, 16});
    return dynamic_update_slice(std::move(whole), part + matmul(x, w), at);
  };
  // The slice is of literals, and so a static one, which is no part that the update knows.
  EXPECT_THAT(names_of(f, kX, kW, type({12, 16})),
              ElementsAre("slice", "product_into", "dynamic_update_slice"));
}

TEST(FuseProducts, SlicePlaces) {
  ProductStrides place;
  EXPECT_TRUE(place_product({3, 10, 20}, {3, 4, 5}, 1, 1, &place));
  EXPECT_EQ(place.row, 20);
  EXPECT_EQ(place.item, 200);
  EXPECT_TRUE(place_product({10, 6, 20}, {4, 6, 20}, 0, 2, &place));
  EXPECT_EQ(place.row, 20);
  EXPECT_TRUE(place_product({10, 6, 20}, {1, 4, 20}, 0, 2, &place));
  EXPECT_FALSE(place_product({10, 6, 20}, {2, 4, 20}, 0, 2, &place));
  EXPECT_TRUE(place_product({10, 6, 20}, {2, 4, 20}, 0, 1, &place));
  EXPECT_EQ(place.row, 120);
  EXPECT_FALSE(place_product({10, 6, 20}, {2, 6, 8}, 0, 1, &place));
  EXPECT_TRUE(place_product({10, 6, 20}, {2, 4, 20}, 1, 1, &place));
  EXPECT_EQ(place.item, 120);
}

TEST(FuseProducts, CostsAreThoseOfTheOperations) {
  const JaxprRef layer =
      fused([](Array x, Array w, Array b) { return relu(matmul(x, w) + b); }, kX, kW, kB);
  const auto cost_of = [](const Eqn& e) {
    std::vector<ShapedArray> in;
    for (const Atom& a : e.in) in.push_back(a.type());
    return e.primitive->cost(in, *e.params, {&e.out[0]->type, 1});
  };
  const Cost one = cost_of(layer->eqns.at(0));
  EXPECT_EQ(one.flops, 2 * 4 * 8 * 16 + 2 * 4 * 16);
  EXPECT_EQ(one.bytes, 4 * (4 * 8 + 8 * 16 + 16 + 4 * 16));
  // For a large destination only the bytes written count.
  const JaxprRef slice = fused(
      [](Array x, Array w, Array whole) {
        return dynamic_update_slice(std::move(whole), matmul(x, w), {Array(6), Array(0)});
      },
      kX, kW, type({1200, 16}));
  EXPECT_EQ(cost_of(slice->eqns.at(0)).bytes, 4 * (4 * 8 + 8 * 16 + 4 * 16));
}

// ---- rings

std::vector<std::pair<int, int>> ring(int n, int step) {
  std::vector<std::pair<int, int>> pairs;
  for (int j = 0; j < n; ++j) pairs.push_back({j, (j + n + step) % n});
  return pairs;
}

Array ring_gather(Array x, Array w) {
  const int n = axis_size("i");
  const Array index = axis_index("i");
  const std::int64_t rows = x.shape()[0];
  Array all = zeros({rows * n, w.shape()[1]});
  for (int i = 0; i < n; ++i) {
    const Array update = matmul(x, w);
    if (i + 1 < n) x = ppermute(x, "i", ring(n, -1));
    all = dynamic_update_slice(std::move(all), update, {(index + i) % n * rows, 0});
  }
  return all;
}

Array ring_scatter(Array x, Array w) {
  const int n = axis_size("i");
  const Array index = axis_index("i");
  const std::int64_t rows = x.shape()[0] / n;
  Array total;
  for (int i = 0; i < n; ++i) {
    const Array at = (index - i - 1) % n * rows;
    Array product = matmul(dynamic_slice(x, {at, 0}, {rows, x.shape()[1]}), w);
    total = i == 0 ? product : ppermute(std::move(total), "i", ring(n, +1)) + std::move(product);
  }
  return total;
}

// A sum of products for each block of rows, whose destinations form a ring.
Array ring_add(Array x, Array w) {
  const int n = axis_size("i");
  const Array index = axis_index("i");
  const std::int64_t rows = x.shape()[0];
  Array all = full({rows * n, w.shape()[1]}, 1.f);
  for (int i = 0; i < n; ++i) {
    const std::vector<Array> at{(index * 3 + i) % n * rows, 0};
    Array part = dynamic_slice(all, at, {rows, w.shape()[1]});
    all = dynamic_update_slice(std::move(all), part + matmul(x * float(i), w), at);
  }
  return all;
}

JaxprRef fused_body(Array (*body)(Array, Array), P x, P w, P out, const ShapedArray& tx,
                    const ShapedArray& tw) {
  const int n = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  const auto f = shard_map(body, mesh, {x, w}, out, {.check_vma = false});
  const ClosedJaxpr outer = make_jaxpr(f)(tx, tw);
  return fused(*inner_jaxprs(*outer.impl().jaxpr->eqns.at(0).params).at(0), *mesh.impl());
}
int count(const Jaxpr& j, const std::string& name) {
  const Names all = names(j);
  return static_cast<int>(std::count(all.begin(), all.end(), name));
}

TEST(FuseProducts, ARingOfProductsWritesEachWhereItBelongs) {
  const int n = static_cast<int>(devices().size());
  const JaxprRef j = fused_body(ring_gather, P("i"), P(), P(), type({2 * n, 8}), kW);
  // The first of them has all the rest written after it, and so needs no zeros.
  EXPECT_EQ(count(*j, "product"), 1) << to_string(*j);
  EXPECT_EQ(count(*j, "product_into"), n - 1);
  EXPECT_EQ(static_cast<int>(j->eqns.size()), n + n - 1);
  EXPECT_EQ(count(*j, "dynamic_update_slice") + count(*j, "dot_general"), 0);
  EXPECT_EQ(count(*j, "axis_index"), 0);  // nobody needs it any more
  for (const Eqn& e : j->eqns) {
    if (e.primitive != &product_into_p && e.primitive != &product_p) continue;
    const auto& offsets = params_as<ProductParams>(*e.params).place.offsets;
    ASSERT_EQ(static_cast<int>(offsets.size()), n);
    for (int d = 1; d < n; ++d)
      EXPECT_EQ(offsets[static_cast<std::size_t>(d)],
                (offsets[static_cast<std::size_t>(d - 1)] + 2 * 16) % (2 * n * 16));
  }
}

TEST(FuseProducts, AProductDoesNotWaitForWhatItIsAddedToAfterAnExchange) {
  const int n = static_cast<int>(devices().size());
  const JaxprRef j = fused_body(ring_scatter, P(none, "i"), P("i"), P("i"), type({2 * n, 3 * n}),
                                type({3 * n, 16}));
  EXPECT_EQ(count(*j, "product"), n) << to_string(*j);  // of slices that are read from their arrays
  EXPECT_EQ(count(*j, "add"), n - 1);
  EXPECT_EQ(count(*j, "product_into") + count(*j, "dynamic_slice"), 0);
}

// Like ring_gather, but the last block is left unchanged.
Array ring_but_one(Array x, Array w) {
  const int n = axis_size("i");
  const Array index = axis_index("i");
  const std::int64_t rows = x.shape()[0];
  Array all = full({rows * n, w.shape()[1]}, 3.f);
  for (int i = 0; i + 1 < n; ++i)
    all =
        dynamic_update_slice(std::move(all), matmul(x * float(i), w), {(index + i) % n * rows, 0});
  return all;
}

TEST(FuseProducts, WhatIsNotAllWrittenIsFilledBefore) {
  const int n = static_cast<int>(devices().size());
  const JaxprRef j = fused_body(ring_but_one, P("i"), P(), P("i"), type({2 * n, 8}), kW);
  EXPECT_EQ(count(*j, "product_into"), n - 1) << to_string(*j);
  EXPECT_EQ(count(*j, "product"), 0);
  // Not fused either if the array is read before all of it is written.
  const auto seen = [](Array x, Array w, Array whole) {
    whole = dynamic_update_slice(std::move(whole), matmul(x, w), {Array(0), Array(0)});
    return std::pair{dynamic_update_slice(whole, matmul(x, w * 2), {Array(4), Array(0)}), whole};
  };
  EXPECT_THAT(names_of(seen, kX, kW, type({8, 16})),
              ElementsAre("product_into", "mul", "product_into"));
  const auto unseen = [](Array x, Array w, Array whole) {
    whole = dynamic_update_slice(std::move(whole), matmul(x, w), {Array(0), Array(0)});
    return dynamic_update_slice(std::move(whole), matmul(x, w * 2), {Array(4), Array(0)});
  };
  EXPECT_THAT(names_of(unseen, kX, kW, type({8, 16})),
              ElementsAre("product", "mul", "product_into"));
}

TEST(FuseProducts, ARingThatAddsToSlices) {
  const int n = static_cast<int>(devices().size());
  const JaxprRef j = fused_body(ring_add, P("i"), P(), P("i"), type({2 * n, 8}), kW);
  EXPECT_EQ(count(*j, "product_into"), n) << to_string(*j);
  EXPECT_EQ(count(*j, "dynamic_slice") + count(*j, "dynamic_update_slice"), 0);
}

// ---- values, as jit has them on these devices

Array numbers(Shape shape, DType dtype, int seed) {
  const std::int64_t n = shape.num_elements();
  return astype(reshape(astype(arange(n) * (seed + 3) % 11 - 5, f32) / 4.f, shape), dtype);
}

void expect_near(const Array& got, const Array& want, double tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  ASSERT_EQ(got.dtype(), want.dtype());
  const auto a = astype(got, f64).to_vector<double>(), b = astype(want, f64).to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << "at " << i;
}

// Makes three calls: the first, the captured one, and a replay.
template <class F, class... A>
void expect_same(double tolerance, F f, const A&... args) {
  const Array want = f(args...);
  auto g = jit(f);
  for (int call = 0; call < 3; ++call) expect_near(g(args...), want, tolerance);
}

TEST(FusedProductValues, TermsAndActivations) {
  for (DType t : {f32, f16, bf16, f64}) {
    SCOPED_TRACE(to_string(t));
    const double eps = t == f32 ? 1e-6 : t == f64 ? 1e-14 : t == f16 ? 2e-3 : 1.6e-2;
    const Array x = numbers({6, 9}, t, 1), w = numbers({9, 10}, t, 2), b = numbers({10}, t, 3),
                c = numbers({6, 10}, t, 4);
    expect_same(
        eps, [](Array x, Array w, Array b) { return matmul(x, w) + b; }, x, w, b);
    expect_same(
        eps, [](Array x, Array w, Array b) { return relu(b + matmul(x, w)); }, x, w, b);
    expect_same(
        eps, [](Array x, Array w) { return gelu(matmul(x, w)); }, x, w);
    expect_same(
        eps, [](Array x, Array w, Array b) { return gelu(matmul(x, w) + b); }, x, w, b);
    expect_same(
        eps, [](Array x, Array w, Array c) { return matmul(x, w) + c; }, x, w, c);
    expect_same(
        eps, [](Array x, Array w, Array b, Array c) { return relu(c + (matmul(x, w) + b)); }, x, w,
        b, c);
    // The term is used afterwards too; the term is a result whose memory may be taken.
    expect_same(
        eps, [](Array x, Array w, Array c) { return (matmul(x, w) + c) * c; }, x, w, c);
    expect_same(
        eps, [](Array x, Array w, Array c) { return matmul(x, w) + c * 2; }, x, w, c);
    // Transposed operands, and batches.
    expect_same(
        eps, [](Array x, Array w, Array c) { return matmul(transpose(x), w) + c; },
        numbers({9, 6}, t, 1), w, c);
    expect_same(
        eps, [](Array x, Array w, Array b) { return relu(matmul(x, w) + b); },
        numbers({3, 6, 9}, t, 1), numbers({3, 9, 10}, t, 2), b);
    expect_same(
        eps, [](Array x, Array w, Array c) { return matmul(x, w) + c; }, numbers({3, 6, 9}, t, 1),
        numbers({3, 9, 10}, t, 2), numbers({3, 6, 10}, t, 5));
  }
}

TEST(FusedProductValues, NansPassActivations) {
  const float nan = std::nanf("");
  const Array x = array<float>({1, nan, 2, -3, 1, 1}, {3, 2}), w = numbers({2, 5}, f32, 2);
  const auto check = [&](auto f) {
    auto g = jit(f);
    for (int call = 0; call < 3; ++call) {
      const std::vector<float> got = g(x, w).template to_vector<float>();
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i < 5) << i;
    }
  };
  check([](Array x, Array w) { return relu(matmul(x, w)); });
  check([](Array x, Array w) { return gelu(matmul(x, w)); });
}

TEST(FusedProductValues, Slices) {
  const Array x = numbers({4, 9}, f32, 1), w = numbers({9, 10}, f32, 2),
              whole = numbers({11, 15}, f32, 3);
  for (int row : {0, 3, -2, 50}) {
    expect_same(
        1e-6,
        [row](Array x, Array w, Array whole) {
          return dynamic_update_slice(std::move(whole), matmul(x, w), {Array(row), Array(2)});
        },
        x, w, whole);
  }
  expect_same(
      1e-6,
      [](Array x, Array w, Array whole) {
        return dynamic_update_slice(std::move(whole), matmul(x, w), {Array(1), Array(5), Array(2)});
      },
      numbers({3, 4, 9}, f32, 1), numbers({3, 9, 10}, f32, 2), numbers({5, 11, 15}, f32, 3));
  // The target stays unchanged if somebody else has it.
  auto f = jit([](Array x, Array w, Array whole) {
    return dynamic_update_slice(std::move(whole), matmul(x, w), {Array(1), Array(0)});
  });
  const std::vector<float> before = whole.to_vector<float>();
  for (int call = 0; call < 3; ++call) {
    f(x, w, whole).block_until_ready();
    EXPECT_EQ(whole.to_vector<float>(), before);
  }
}

void expect_ring(Array (*body)(Array, Array), P x_spec, P w_spec, P out, const Array& x,
                 const Array& w) {
  const int n = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  const auto f = shard_map(body, mesh, {x_spec, w_spec}, out, {.check_vma = false});
  const Array a = device_put(x, NamedSharding(mesh, x_spec)),
              b = device_put(w, NamedSharding(mesh, w_spec));
  expect_same(1e-5, f, a, b);
}

TEST(FusedProductValues, Rings) {
  const int n = static_cast<int>(devices().size());
  const Array x = numbers({2 * n, 9}, f32, 1), w = numbers({9, 10}, f32, 2);
  expect_ring(ring_gather, P("i"), P(), P(), x, w);
  expect_ring(ring_add, P("i"), P(), P("i"), x, w);
  expect_ring(ring_but_one, P("i"), P(), P("i"), x, w);
  expect_ring(ring_scatter, P(none, "i"), P("i"), P("i"), numbers({2 * n, 3 * n}, f32, 1),
              numbers({3 * n, 10}, f32, 2));
}

TEST(FusedProductValues, ALayerOnShards) {
  const int n = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  const auto layer =
      shard_map([](Array x, Array w, Array b,
                   Array r) { return relu(matmul(gelu(matmul(x, w) + b), transpose(w)) + r); },
                mesh, {P("i"), P(), P(), P("i")}, P("i"));
  const auto put = [&](Array x, P spec) { return device_put(x, NamedSharding(mesh, spec)); };
  expect_same(1e-5, layer, put(numbers({2 * n, 6}, f32, 1), P("i")),
              put(numbers({6, 5}, f32, 2), P()), put(numbers({5}, f32, 3), P()),
              put(numbers({2 * n, 6}, f32, 4), P("i")));
}

}  // namespace
}  // namespace shmap
