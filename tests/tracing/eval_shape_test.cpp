// Shapes without values, functions that return nothing, operations given as functions, and rings.
#include <gtest/gtest.h>

#include "core/array/mesh_impl.h"
#include "core/device/backend.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

struct Layer {
  Array w, b;
  int count = 3;
};

TEST(EvalShape, GivesTypes) {
  const auto f = [](Array x, Layer l) { return std::pair{matmul(x, l.w) + l.b, l}; };
  const Layer layer{abstract_array({{4, 5}, f32}), abstract_array({{5}, f32}), 7};
  const auto [y, same] = eval_shape(f)(ShapedArray({2, 4}, f32), layer);
  EXPECT_EQ(y.type(), ShapedArray({2, 5}, f32));
  EXPECT_EQ(same.w.shape(), (Shape{4, 5}));
  EXPECT_EQ(same.count, 7);
  EXPECT_EQ(eval_shape([](Array x) { return sum(x); })(zeros({3}, bf16)).dtype(), bf16);
}

TEST(EvalShape, OfCallsBeyondAnyMemory) {
  const auto f = [](Array a, Array b) { return matmul(a, b); };
  const ShapedArray huge({1 << 20, 1 << 20}, f32);
  EXPECT_EQ(eval_shape(f)(huge, huge).type(), huge);
}

TEST(EvalShape, MakeJaxprTakesStructsOfAbstractArrays) {
  const auto f = [](Layer l) { return l.w * l.b; };
  const ClosedJaxpr jaxpr =
      make_jaxpr(f)(Layer{abstract_array({{2, 3}, f32}), abstract_array({{3}, f32})});
  EXPECT_EQ(to_string(typecheck(jaxpr)), "(f32[2,3], f32[3]) -> (f32[2,3])");
}

TEST(EvalShape, AbstractArraysHaveNoValue) {
  const Array x = abstract_array({{3}, f32});
  EXPECT_EQ(x.ndim(), 1);
  test::expect_error<Error>([&] { (x + 1).block_until_ready(); }, {"f32[3]"});
  test::expect_error<Error>([&] { (void)x.to_vector<float>(); }, {"f32[3]"});
}

TEST(VoidBodies, AreMappedAndTraced) {
  const Mesh mesh = make_mesh({8}, "i");
  int calls = 0;
  Array seen;
  shard_map(
      [&](Array block) {
        ++calls;
        seen = psum(block, "i");
      },
      mesh, P("i"), P())(arange(8));
  EXPECT_EQ(calls, 1);
  const auto f = jit([&](Array x) {
    ++calls;
    debug::print("x = {}", x);
  });
  ::testing::internal::CaptureStdout();
  f(arange(2));
  f(arange(2));
  detail::MeshImpl::default_device()->backend().synchronize();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "x = [0. 1.]\nx = [0. 1.]\n");
  EXPECT_EQ(calls, 2);
  vmap([&](Array) { ++calls; })(arange(4));
  EXPECT_EQ(calls, 3);
}

TEST(Operations, AreFunctionsToo) {
  const Array a = reshape(arange(24), {2, 3, 4}), b = reshape(arange(40), {2, 4, 5});
  const Array c = vmap(matmul)(a, b);
  EXPECT_EQ(c.shape(), (Shape{2, 3, 5}));
  EXPECT_EQ(c[1].to_vector<float>(), matmul(a[1], b[1]).to_vector<float>());
  EXPECT_EQ(jit(shmap::tanh)(a).to_vector<float>(), tanh(a).to_vector<float>());
  EXPECT_EQ(grad(shmap::square)(3.f).item<float>(), 6);
  // Overloaded functions are chosen by name: the overload of one array.
  const auto each = [&](auto f) {
    std::vector<float> out;
    for (std::int64_t i = 0; i < 2; ++i) {
      const std::vector<float> part = f(a[i]).template to_vector<float>();
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  };
  EXPECT_EQ(vmap(sum)(a).to_vector<float>(), each([](Array x) { return sum(x); }));
  EXPECT_EQ(vmap(shmap::max, 1)(a).shape(), (Shape{3}));
  EXPECT_EQ(vmap(vmap(mean))(a).shape(), (Shape{2, 3}));
  EXPECT_EQ(vmap(argmax)(a).to_vector<std::int32_t>(), (std::vector<std::int32_t>{11, 11}));
  EXPECT_EQ(vmap(shmap::exp, 0, -1)(a).shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(jit(sum)(a).item<float>(), sum(a).item<float>());
  EXPECT_EQ(jit(vmap(sum))(a).to_vector<float>(), vmap(sum)(a).to_vector<float>());
}

TEST(Rings, HandOn) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto shifted = [&](int by) {
    return shard_map(
               [by](Array x) {
                 return ppermute(x, axes("i", "j"), ring_permutation(axes("i", "j"), by));
               },
               mesh, P(axes("i", "j")), P(axes("i", "j")))(arange(8))
        .to_vector<float>();
  };
  EXPECT_EQ(shifted(1), (std::vector<float>{7, 0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(shifted(-2), (std::vector<float>{2, 3, 4, 5, 6, 7, 0, 1}));
  EXPECT_EQ(shifted(9), shifted(1));
}

}  // namespace
}  // namespace shmap
