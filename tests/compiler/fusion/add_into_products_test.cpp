// shmap-test: devices
// Products that add their results to a term: values are those of eager operations, bit for bit.
#include "core/compiler/fusion/add_into_products.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/cpu/kernels/matmul/gemm.h"
#include "core/device/runtime.h"
#include "shmap/shmap.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

class AddIntoProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (make_mesh({1}, "i").impl()->backend().kind() != DeviceKind::cpu)
      GTEST_SKIP() << "products of GPUs take terms in the pass fuse_products, and round once";
  }
};

Array numbers(const Shape& shape, DType dtype = f32) {
  return astype(sin(reshape(arange(shape.num_elements()), shape) * 1.7f) * 9.f, dtype);
}

// Whether a product of matrices of f32 adds to its result with the bits of an addition.
bool adds_exactly(std::int64_t m, std::int64_t n, std::int64_t k) {
  cpu::Gemm g;
  g.m = m, g.n = n, g.k = k;
  g.lda = k, g.ldb = n, g.ldc = n;
  return cpu::gemm_accumulates_exactly(g);
}

template <class F, class... A>
std::string plan_of(F f, const A&... args) {
  const auto jitted = jit(f);
  jitted(args...);
  return jitted.plan_text();
}

// Compares with eager results. The plan must have `wanted` products that add to a term.
template <class F, class... A>
void expect_added(std::size_t wanted, F f, const A&... args) {
  expect_same_under_jit(f, Communication::no_more, args...);
  const std::string plan = plan_of(f, args...);
  std::size_t n = 0;
  for (std::size_t at = plan.find("product_into["); at != plan.npos;
       at = plan.find("product_into[", at + 1))
    ++n;
  EXPECT_EQ(n, wanted) << plan;
}

// Products of one part and of several, whose parts are rows and columns.
TEST_F(AddIntoProducts, OfManyExtents) {
  constexpr std::int64_t extents[][3] = {
      {2, 2, 1},      {5, 7, 3},      {16, 16, 16},  {64, 64, 64},   {100, 100, 100},
      {101, 99, 100}, {300, 200, 50}, {33, 700, 96}, {700, 33, 256}, {40, 3000, 90}};
  for (const auto& [m, n, k] : extents) {
    SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k));
    const Array x = numbers({m, k}), y = numbers({k, n}), term = numbers({m, n}) + 1.f;
    const std::size_t wanted = adds_exactly(m, n, k) ? 1 : 0;
    expect_added(
        wanted, [](Array x, Array y, Array t) { return matmul(x, y) + t; }, x, y, term);
    expect_added(
        wanted, [](Array x, Array y, Array t) { return t + matmul(x, y); }, x, y, term);
    expect_same_under_jit([](Array x, Array y, Array t) { return matmul(transpose(x), y) + t; },
                          Communication::no_more, numbers({k, m}), y, term);
    expect_same_under_jit([](Array x, Array y, Array t) { return t + matmul(x, transpose(y)); },
                          Communication::no_more, x, numbers({n, k}), term);
  }
}

TEST_F(AddIntoProducts, OfBatchesAndIntegers) {
  for (const DType dtype : {i8, u16, i32, u64}) {
    SCOPED_TRACE(to_string(dtype));
    const auto sum = [](Array x, Array y, Array t) { return matmul(x, y) + t; };
    expect_added(1, sum, numbers({70, 80}, dtype), numbers({80, 90}, dtype),
                 numbers({70, 90}, dtype));
    expect_added(1, sum, numbers({3, 70, 80}, dtype), numbers({3, 80, 90}, dtype),
                 numbers({3, 70, 90}, dtype));
    expect_added(
        1, [](Array x, Array y, Array t) { return einsum("abc,cbd->bad", x, y) + t; },
        numbers({20, 5, 30}, dtype), numbers({30, 5, 40}, dtype), numbers({5, 20, 40}, dtype));
  }
}

TEST_F(AddIntoProducts, ATermThatIsAFactor) {
  const Array x = numbers({90, 90}), y = numbers({90, 90}) * 0.1f;
  const std::size_t wanted = adds_exactly(90, 90, 90) ? 1 : 0;
  expect_added(
      wanted, [](Array x, Array y) { return matmul(x, y) + x; }, x, y);
  expect_added(
      wanted, [](Array x, Array y) { return matmul(x, y) + y; }, x, y);
  // The plan owns the factor, whose last reader is the product.
  expect_added(
      wanted,
      [](Array x, Array y) {
        const Array s = sin(x);
        return matmul(s, y) + s;
      },
      x, y);
  if (wanted == 0) return;
  auto f = jit([](Array x, Array y) { return matmul(x, y) + x; });
  const std::vector<float> want = (matmul(x, y) + x).to_vector<float>();
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(f(another_copy(x), y).to_vector<float>(), want) << "call " << call;
}

TEST_F(AddIntoProducts, OfTwoProductsOne) {
  const Array x = numbers({50, 60}, i32), y = numbers({60, 50}, i32);
  const auto two = [](Array x, Array y, Array t) { return matmul(x, y) + matmul(t, x); };
  expect_added(1, two, numbers({60, 60}, i32), numbers({60, 60}, i32), numbers({60, 60}, i32));
  // Both, where one multiplies the other's sum.
  expect_added(
      2, [](Array x, Array y, Array t) { return matmul(matmul(x, y) + t, x) + x; }, x, y,
      numbers({50, 50}, i32));
  // Two additions after each other are one step already.
  expect_added(
      0, [](Array x, Array y, Array t) { return matmul(x, y) + t + y; }, numbers({60, 60}, i32),
      numbers({60, 60}, i32), numbers({60, 60}, i32));
}

TEST_F(AddIntoProducts, OfALoop) {
  const Array x = numbers({100, 100}) * 0.01f;
  const auto loop = [](Array x) {
    return fori_loop(
        0, 20, [x](Array, Array c) { return matmul(c, x) + x; }, x);
  };
  expect_added(adds_exactly(100, 100, 100) ? 20 : 0, loop, x);
}

TEST_F(AddIntoProducts, WhatIsLeft) {
  const Array x = numbers({50, 60}, i32), y = numbers({60, 50}, i32), t = numbers({50, 50}, i32);
  // another reader of the product, of the program and of the result
  expect_added(
      0,
      [](Array x, Array y, Array t) {
        const Array p = matmul(x, y);
        return std::pair{p + t, p};
      },
      x, y, t);
  expect_added(
      0,
      [](Array x, Array y, Array t) {
        const Array p = matmul(x, y);
        return (p + t) * p;
      },
      x, y, t);
  expect_added(
      0,
      [](Array x, Array y, Array) {
        const Array p = matmul(x, y);
        return p + p;
      },
      x, y, t);
  // a chain, a number, a row
  expect_added(
      0, [](Array x, Array y, Array t) { return maximum(matmul(x, y) + t, 0); }, x, y, t);
  expect_added(
      0, [](Array x, Array y, Array) { return matmul(x, y) + 3; }, x, y, t);
  expect_added(
      0, [](Array x, Array y, Array t) { return matmul(x, y) + t[0]; }, x, y, t);
  // a large result
  expect_added(
      0, [](Array x, Array y, Array t) { return matmul(x, y) + t; }, numbers({400, 9}, i32),
      numbers({9, 400}, i32), numbers({400, 400}, i32));
  // dtypes whose products are rounded, or whose sums may be cut
  for (const DType dtype : {bf16, f16, f64})
    expect_added(
        0, [](Array x, Array y, Array t) { return matmul(x, y) + t; }, astype(x, dtype),
        astype(y, dtype), astype(t, dtype));
  expect_added(
      0, [](Array x, Array y, Array t) { return matmul(x, y) + t; }, numbers({64, 3000}),
      numbers({3000, 64}), numbers({64, 64}));
}

// A product does not wait for a collective of the term.
TEST_F(AddIntoProducts, ProductsDoNotWaitForCollectives) {
  const Mesh mesh = make_mesh({4}, "i");
  const Array x = numbers({200, 60}, i32), y = numbers({60, 50}, i32), t = numbers({200, 50}, i32);
  const auto body = [](bool sums) {
    return [sums](Array x, Array y, Array t) { return matmul(x, y) + (sums ? psum(t, "i") : t); };
  };
  expect_added(1, shard_map(body(false), mesh, {P("i"), P(), P("i")}, P("i")), x, y, t);
  expect_added(0, shard_map(body(true), mesh, {P("i"), P(), P("i")}, P("i")), x, y, t);
}

TEST_F(AddIntoProducts, TextOfAProgram) {
  const std::string plan =
      plan_of([](Array x, Array y, Array t) { return t + matmul(x, y); }, numbers({50, 60}, i32),
              numbers({60, 50}, i32), numbers({50, 50}, i32));
  EXPECT_NE(plan.find("i32[50,50] = product_into[adds=True "
                      "dimension_numbers=(((1,), (0,)), ((), ()))] %0"),
            plan.npos)
      << plan;
  EXPECT_EQ(plan.find(" add "), plan.npos) << plan;
  EXPECT_EQ(plan.find(" = dot_general"), plan.npos) << plan;
}

}  // namespace
}  // namespace shmap::test
