// Fusion of jaxprs: what becomes one equation, what does not, and that values stay the same to the
// last bit.
#include "core/compiler/fusion/fuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/compiler/passes/simplify.h"
#include "core/ir/jaxpr.h"
#include "core/ops/elementwise.h"
#include "core/runtime/fused_program.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using testing::ElementsAre;

// Fuses the simplified program, in the form that jit has.
ClosedJaxpr fused(const ClosedJaxpr& j) {
  const JaxprRef made = fuse(*simplify(*j.impl().jaxpr));
  typecheck_jaxpr(*made);
  return close_jaxpr(made, j.consts());
}

// The names of the equations' primitives.
std::vector<std::string> names(const ClosedJaxpr& j) {
  std::vector<std::string> out;
  for (const Eqn& e : j.impl().jaxpr->eqns) out.push_back(e.primitive->name);
  return out;
}

// The values as the bits of 64-bit numbers; all NaNs are equal.
std::vector<std::uint64_t> bits(const Array& x) {
  std::vector<std::uint64_t> out;
  for (double v : astype(x, f64).to_vector<double>()) {  // exact but for wide integers
    std::uint64_t b;
    if (std::isnan(v)) v = std::nan("");
    std::memcpy(&b, &v, 8);
    out.push_back(b);
  }
  return out;
}

void expect_same_values(const ClosedJaxpr& before, const ClosedJaxpr& after,
                        const std::vector<Array>& args) {
  const std::vector<Array> want = eval_jaxpr(before, args), got = eval_jaxpr(after, args);
  ASSERT_EQ(want.size(), got.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].dtype(), want[i].dtype());
    EXPECT_EQ(got[i].shape(), want[i].shape());
    EXPECT_EQ(bits(got[i]), bits(want[i])) << "result " << i << " of\n"
                                           << to_string(before) << "\n"
                                           << to_string(after);
  }
}

Array numbers(const Shape& shape, DType dtype = f32, unsigned seed = 1) {
  std::mt19937 engine(seed);
  std::vector<double> out(static_cast<std::size_t>(shape.num_elements()));
  for (double& x : out) x = std::uniform_real_distribution<>(-3, 3)(engine);
  return astype(array<double>(out, shape), dtype);
}

// Checks that f becomes these equations, and that the values are the same.
template <class F, class... A>
ClosedJaxpr expect_fused(const std::vector<std::string>& want, F f, const A&... args) {
  const ClosedJaxpr j = make_jaxpr(f)(args...);
  const ClosedJaxpr k = fused(j);
  EXPECT_EQ(names(k), want) << to_string(k);
  expect_same_values(j, k, {args...});
  return k;
}

TEST(Fuse, AChainIsOneEquation) {
  const ClosedJaxpr j = make_jaxpr([](Array x, Array y) {
    return sqrt(maximum(square(x * 1.5f + y) - x, 0.125f));
  })(ShapedArray({3, 4}, f32), ShapedArray({3, 4}, f32));
  EXPECT_EQ(
      to_string(fused(j)),
      "{ lambda a:f32[3,4], b:f32[3,4] .\n"
      "  let c:f32[3,4] = fused[program=[1,12] (a:f32 b:f32) c:f32 = mul a 1.5; d:f32 = add c "
      "b; e:f32 = square d; f:f32 = sub e a; g:f32 = max f 0.125; h:f32 = sqrt g -> h] a b\n"
      "  in ( c ) }");
}

TEST(Fuse, EachFormOfElementwiseOperationFuses) {
  const Array x = numbers({3, 40});
  expect_fused(
      {"fused"}, [](Array a) { return where(a > 0.5f, exp(a), -a); }, x);
  expect_fused(
      {"fused"}, [](Array a) { return clip(a * 2.f, -1.f, 1.f); }, x);
  expect_fused(
      {"fused"}, [](Array a) { return astype(astype(a, bf16) * 3.f, i32); }, x);
  expect_fused(
      {"fused"}, [](Array a) { return bitcast(bitcast(a * 2.f, i32) + 1, f32); }, x);
  expect_fused(  // the elements become others
      {"mul", "bitcast_convert_type", "neg"}, [](Array a) { return -bitcast(a * 2.f, i16); }, x);
}

TEST(Fuse, ElementwisePrimitivesHaveARow) {
  ensure_started();
  for (const Primitive* p : all_primitives()) {
    if (!p->elementwise || p->user != nullptr || p->view != nullptr) continue;
    if (p == find_primitive("random_fold_in")) continue;  // of keys, which fused programs only read
    EXPECT_NE(p->elementwise_row, nullptr) << p->name;
  }
}

TEST(Fuse, SoftmaxIsOneEquation) {
  const ClosedJaxpr j = make_jaxpr([](Array x) { return softmax(x); })(ShapedArray({8, 16}, f32));
  EXPECT_EQ(to_string(fused(j)),
            "{ lambda a:f32[8,16] .\n"
            "  let b:f32[8,16] = fused[program=[8,16] (a:f32) b:f32/row = reduce_max a; c:f32 = "
            "broadcast b; d:f32 = sub a c; e:f32 = exp d; f:f32/row = reduce_sum e; g:f32 = "
            "broadcast f; h:f32 = div e g -> h] a\n"
            "  in ( b ) }");
}

TEST(Fuse, LayersAreOneEquation) {
  const Array x = numbers({2, 5, 40});
  const Array scale = numbers({40}, f32, 2), bias = numbers({40}, f32, 3);
  expect_fused(
      {"fused"}, [](Array a) { return softmax(a); }, x);
  expect_fused(
      {"fused"}, [](Array a) { return log_softmax(a); }, x);
  expect_fused(
      {"fused"},
      [](Array a) {
        return softmax(a, {1, 2});
      },
      x);
  expect_fused(
      {"fused"}, [](Array a) { return logsumexp(a, -1, true); }, x);
  expect_fused(
      {"fused"}, [](Array a) { return var(a, -1, false); }, x);
  expect_fused(
      {"fused"}, [](Array a) { return gelu(a); }, x);
  expect_fused(
      {"fused"}, [](Array a) { return gelu(a, false); }, x);
  expect_fused(
      {"fused"}, [](Array a) { return silu(a); }, x);
  expect_fused(
      {"fused"}, [](Array a, Array s, Array b) { return layer_norm(a, s, b); }, x, scale, bias);
  expect_fused(
      {"fused"}, [](Array a, Array s) { return rms_norm(a, s); }, x, scale);
}

TEST(Fuse, LayersInHalfPrecisionAreOneEquation) {
  const Array x = numbers({6, 40}, bf16);
  const Array scale = numbers({40}, bf16, 2), bias = numbers({40}, bf16, 3);
  expect_fused(
      {"fused"}, [](Array a) { return softmax(a); }, x);
  expect_fused(
      {"fused"}, [](Array a) { return gelu(a); }, x);
  expect_fused(
      {"fused"}, [](Array a, Array s, Array b) { return layer_norm(a, s, b); }, x, scale, bias);
  expect_fused(
      {"fused"}, [](Array a, Array s) { return rms_norm(a, s); }, x, scale);
}

TEST(Fuse, AReshapeOfAResultStays) {  // it is a view
  expect_fused(
      {"fused", "reshape"}, [](Array a) { return logsumexp(a, -1, false); }, numbers({4, 5}));
}

TEST(Fuse, OneRowIsOneEquation) {
  expect_fused(
      {"fused"}, [](Array a) { return softmax(a); }, numbers({50}));
  expect_fused(
      {"fused"}, [](Array a) { return a / sum(a); }, numbers({1, 50}));
  // The greatest element, reshaped and broadcast as a scalar.
  expect_fused(
      {"fused"},
      [](Array a) {
        return broadcast_to(reshape(max(a), {1}), {1, 1}) * a + a;
      },
      numbers({1, 9}));
}

TEST(Fuse, ABiasIsAddedAsItIs) {
  const ClosedJaxpr j = expect_fused(
      {"fused"}, [](Array x, Array b) { return x + b; }, numbers({7, 9}), numbers({9}));
  EXPECT_THAT(to_string(j), testing::HasSubstr("(a:f32/col b:f32)"));
}

TEST(Fuse, OneOperationStaysAsItIs) {
  const ClosedJaxpr j = make_jaxpr([](Array x) { return sin(x); })(ShapedArray({3}, f32));
  EXPECT_EQ(fuse(*j.impl().jaxpr), j.impl().jaxpr);
}

TEST(Fuse, AValueThatIsUsedElsewhereIsASecondResult) {
  const auto f = [](Array x) {
    const Array y = exp(x);
    return std::pair{y, y * 2 + x};
  };
  const ClosedJaxpr j = make_jaxpr(f)(ShapedArray({3}, f32));
  EXPECT_EQ(to_string(fused(j)),
            "{ lambda a:f32[3] .\n"
            "  let b:f32[3] c:f32[3] = fused[program=[1,3] (a:f32) b:f32 = exp a; c:f32 = mul b "
            "2.0; d:f32 = add c a -> b d] a\n"
            "  in ( b, c ) }");
  expect_same_values(j, fused(j), {numbers({3})});
}

TEST(Fuse, SiblingsOfOneValueFuse) {
  expect_fused(
      {"fused"},
      [](Array x) {
        const Array y = exp(x);
        return std::pair{sin(y), cos(y)};
      },
      numbers({4, 4}));
}

TEST(Fuse, NothingFusesAroundWhatLiesBetween) {
  // The product needs y, and the sum both: one equation of exp and add would need its own result.
  expect_fused(
      {"exp", "dot_general", "add"},
      [](Array x) {
        const Array y = exp(x);
        return y + matmul(y, x);
      },
      numbers({4, 4}));
  // Two clusters that would wait for each other through two products.
  expect_fused(
      {"fused", "dot_general", "dot_general", "fused"},
      [](Array x) {
        const Array a = exp(x) * 2, b = matmul(a, x), c = matmul(b, x);
        return (a + b) * c;
      },
      numbers({4, 4}));
}

TEST(Fuse, OtherReductionsStay) {
  expect_fused(
      {"fused", "reduce_sum"}, [](Array x) { return sum(exp(x) * x, 0); }, numbers({4, 6}));
}

TEST(Fuse, RowsAreFollowedThroughOperationsOnThem) {
  expect_fused(
      {"fused"},
      [](Array x) {
        const Array norm = sqrt(sum(square(x), -1, true) + 1e-6f);
        return std::pair{x / norm, norm};
      },
      numbers({5, 33}));
}

TEST(Fuse, OtherVarianceStaysApart) {
  const ClosedJaxpr j = make_jaxpr([](Array x) {
    const Array s = psum(x * 2 + 1, "i");
    return exp(s) * 3 + pbroadcast(s, "i") * x * 2;
  })(ShapedArray({4}, f32, "i"));
  const ClosedJaxpr k = fused(j);
  EXPECT_THAT(names(k), testing::Contains("psum"));
  EXPECT_THAT(names(k), testing::Contains("pbroadcast"));
  for (const Eqn& e : k.impl().jaxpr->eqns) {
    if (e.primitive != &fused_p) continue;
    for (const Atom& a : e.in) EXPECT_EQ(a.type().axes(), e.out[0]->type.axes());
  }
}

TEST(Fuse, WhatACollectiveReadsDoesNotWait) {
  const ClosedJaxpr j = make_jaxpr([](Array x, Array w) {
    const Array y = exp(x) * 2;
    return std::pair{psum(y, "i"), matmul(x, w) + y};
  })(ShapedArray({4, 4}, f32, "i"), ShapedArray({4, 4}, f32, "i"));
  EXPECT_THAT(names(fused(j)), ElementsAre("fused", "psum", "dot_general", "add"));
}

// A program of random operations on arrays of a few shapes.
class RandomFunction {
 public:
  RandomFunction(unsigned seed, DType dtype) : engine_(seed), dtype_(dtype) {}

  std::vector<Array> operator()(const std::vector<Array>& args) {
    std::vector<Array> values = args;
    for (int k = 0; k < 14; ++k) values.push_back(step(values));
    std::vector<Array> out;
    for (int k = 1 + below(3); k > 0; --k) out.push_back(pick(values));
    out.push_back(values.back());
    return out;
  }

 private:
  int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }
  const Array& pick(const std::vector<Array>& values) {
    const int n = static_cast<int>(values.size());
    const int late = n - 1 - below(std::min(n, 4));
    return values[static_cast<std::size_t>(below(3) ? late : below(n))];
  }
  Array number(Array x) { return x.dtype() == dtype_ ? x : astype(x, dtype_); }
  Array step(const std::vector<Array>& values) {
    const Array x = number(pick(values)), y = number(pick(values));
    const int last = x.ndim() - 1;
    const bool real = is_floating(dtype_);
    switch (below(16)) {
      case 0:
        return x + y;
      case 1:
        return x * y;
      case 2:
        return maximum(x, y) - y;
      case 3:
        return where(x > y, x, y);
      case 4:
        return real ? tanh(x) : abs(x);
      case 5:
        return real ? exp(minimum(x, 2)) : sign(x);
      case 6:
        return x * 0.5f + 1;
      case 7:
        return x.ndim() ? max(x, last, true) : -x;
      case 8:
        return x.ndim() ? sum(x, last, true) : square(x);
      case 9:
        return x.ndim() ? sum(x, last, false) : x - 1;
      case 10:
        return x.ndim() > 1 ? sum(x, 0, true) : x + 3;
      case 11:
        return astype(x, f32);
      case 12:
        return reshape(x, {-1, x.ndim() && x.shape()[static_cast<std::size_t>(last)]
                                   ? x.shape()[static_cast<std::size_t>(last)]
                                   : 1});
      case 13:
        return x.ndim() == 2 ? transpose(x) : x * x;
      case 14:
        return x.ndim() ? softmax(x) : x;
      default:
        return clip(x, -1, 1) + x;
    }
  }
  std::mt19937 engine_;
  DType dtype_;
};

TEST(Fuse, LongProgramsAreNoTrouble) {
  const auto f = [](Array x, Array w) {
    for (int k = 0; k < 100; ++k) {
      const Array y = gelu(matmul(x, w)) * 0.5f;
      x = softmax(y + x) - y;
    }
    return x;
  };
  const ClosedJaxpr j = make_jaxpr(f)(ShapedArray({8, 8}, f32), ShapedArray({8, 8}, f32));
  const ClosedJaxpr k = fused(j);
  EXPECT_EQ(k.impl().jaxpr->eqns.size(), 200u);
  expect_same_values(j, k, {numbers({8, 8}), numbers({8, 8}, f32, 2)});
}

TEST(Fuse, RandomProgramsKeepTheirValues) {
  int fused_equations = 0;
  unsigned seed = 1;
  for (const DType dtype : {f32, f64, bf16, f16, i32}) {
    for (const auto& [rows, cols] :
         {std::pair{0, 3}, std::pair{1, 1}, std::pair{1, 7}, std::pair{5, 1}, std::pair{7, 13},
          std::pair{4, 4}, std::pair{3, 700}, std::pair{601, 257}}) {
      for (int tries = 0; tries < (rows * cols > 10000 ? 3 : 8); ++tries, ++seed) {
        const std::vector<Array> args = {numbers({rows, cols}, dtype, seed),
                                         numbers({rows, cols}, dtype, seed + 1),
                                         numbers({cols}, dtype, seed + 2),
                                         numbers({rows, 1}, dtype, seed + 3), numbers({}, dtype)};
        const auto f = [&](std::vector<Array> in) { return RandomFunction(seed, dtype)(in); };
        ClosedJaxpr j = close_jaxpr({}, {});
        try {
          j = make_jaxpr(f)(args);
        } catch (const ValueError&) {  // shapes that do not go together
          continue;
        }
        const ClosedJaxpr k = fused(j);
        for (const std::string& name : names(k)) fused_equations += name == "fused";
        expect_same_values(j, k, args);
        ASSERT_FALSE(HasFailure()) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(fused_equations, 100);
}

}  // namespace
}  // namespace shmap
