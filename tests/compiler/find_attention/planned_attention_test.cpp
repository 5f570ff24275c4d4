// shmap-test: devices
// Attention that is found in programs: the results of planned programs, and their memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/ops/attention.h"
#include "shmap/shmap.h"
#include "tests/support/planned_bytes.h"

namespace shmap {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Array columns(int n) { return arange(n); }
Array rows(int n) { return reshape(arange(n), {n, 1}); }

Array attend(Array q, Array k, Array v) {
  return matmul(softmax(matmul(q, swapaxes(k, -1, -2))), v);
}

Array numbers(const Shape& shape, DType dtype, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<double> out(static_cast<std::size_t>(shape.num_elements()));
  for (double& x : out) x = std::uniform_real_distribution<>(-1.5, 1.5)(engine);
  return astype(array<double>(out, shape), dtype);
}

bool has_kernel() { return attention_check(devices()[0].kind()) != nullptr; }

bool attends(const std::string& plan) { return plan.find("attention[") != std::string::npos; }

double tolerance(DType dtype) { return dtype == f32 ? 2e-5 : dtype == f16 ? 4e-3 : 3e-2; }

void expect_near(const Array& got, const Array& want, double tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<double> a = astype(got, f64).to_vector<double>(),
                            b = astype(want, f64).to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_NEAR(a[i], b[i], tolerance) << "element " << i;
  }
}

// f under jit, against f eagerly, on operands as f32.
template <class F, class... A>
void expect_attention(F f, DType dtype, const A&... args) {
  const auto planned = jit(f);
  const auto wide = [](const Array& x) { return x.dtype() == bool_ ? x : astype(x, f32); };
  const Array want = f(wide(args)...);
  for (int call = 0; call < 3; ++call) expect_near(planned(args...), want, tolerance(dtype));
  EXPECT_EQ(attends(planned.plan_text()), has_kernel()) << planned.plan_text();
}

TEST(PlannedAttention, OfEachDtypeAndForm) {
  for (const DType dtype : {f32, bf16, f16}) {
    const Array q = numbers({2, 20, 3, 16}, dtype, 1), k = numbers({2, 36, 3, 16}, dtype, 2),
                v = numbers({2, 36, 3, 8}, dtype, 3);
    const Array bias = numbers({3, 20, 36}, dtype, 4);
    const Array keep = numbers({2, 1, 1, 36}, f32, 5) > -1.f;
    expect_attention(
        [](Array q, Array k, Array v) {
          const Array s = einsum("bqhd,bkhd->bhqk", q, k) * 0.25f;
          return einsum("bhqk,bkhd->bqhd", softmax(s), v);
        },
        dtype, q, k, v);
    expect_attention(
        [](Array q, Array k, Array v, Array bias, Array keep) {
          Array s = einsum("bqhd,bkhd->bhqk", q, k) * 0.25f + bias;
          s = where(keep, s, -kInf);
          return einsum("bhqk,bkhd->bqhd", softmax(s), v);
        },
        dtype, q, k, v, bias, keep);
    expect_attention(
        [](Array q, Array k, Array v) {
          Array s = einsum("bqhd,bkhd->bhqk", q, k) / 4.f;
          s = where(rows(20) + 16 >= columns(36), s, -1e30f);
          return einsum("bhqk,bkhd->bhqd", softmax(s), v);
        },
        dtype, q, k, v);
  }
}

TEST(PlannedAttention, HeadsBeforeRowsAndOneRow) {
  const auto f = [](Array q, Array k, Array v) {
    return matmul(softmax(matmul(q, swapaxes(k, -1, -2)) * 0.25f), v);
  };
  for (const int n : {1, 20})
    expect_attention(f, bf16, numbers({2, 3, n, 16}, bf16, 1), numbers({2, 3, 36, 16}, bf16, 2),
                     numbers({2, 3, 36, 16}, bf16, 3));
  expect_attention(f, f32, numbers({20, 16}, f32, 1), numbers({36, 16}, f32, 2),
                   numbers({36, 16}, f32, 3));
  // There are so few rows that several blocks of threads share the keys and leave partial results
  // in scratch.
  for (const DType dtype : {f32, bf16})
    expect_attention(f, dtype, numbers({2, 1, 16}, dtype, 1), numbers({2, 1500, 16}, dtype, 2),
                     numbers({2, 1500, 16}, dtype, 3));
}

// Dims of operands, scores and results in any order but for features, products either way round, a
// bias and a mask of some of the scores' dims.
TEST(PlannedAttention, LayoutsAtRandom) {
  const std::map<char, int> extents = {{'b', 2}, {'h', 3}, {'q', 5}, {'k', 9}, {'d', 8}, {'e', 4}};
  std::mt19937 engine(7);
  const auto shuffled = [&](std::string labels) {
    std::shuffle(labels.begin(), labels.end(), engine);
    return labels;
  };
  const auto drawn = [&](const std::string& labels, bool some) {
    Shape shape;
    for (char c : labels) shape.push_back(some && engine() % 2 ? 1 : extents.at(c));
    return numbers(shape, f32, static_cast<unsigned>(engine()));
  };
  for (int trial = 0; trial < 24; ++trial) {
    const std::string q = shuffled("bqh") + "d", k = shuffled("bkh") + "d",
                      v = shuffled("bkh") + "e", s = shuffled("bhqk"), y = shuffled("bqh") + "e";
    const bool k_first = engine() % 2, v_first = engine() % 2, biased = engine() % 2,
               masked = engine() % 2;
    const int softened = static_cast<int>(s.find('k'));
    SCOPED_TRACE(q + " " + k + " " + v + " " + s + " " + y);
    const auto product = [](const std::string& a, const std::string& b, const std::string& to,
                            bool swapped, Array x, Array z) {
      return swapped ? einsum(b + "," + a + "->" + to, z, x)
                     : einsum(a + "," + b + "->" + to, x, z);
    };
    expect_attention(
        [=](Array x, Array z, Array w, Array bias, Array keep) {
          Array scores = product(q, k, s, k_first, x, z) * 0.5f;
          if (biased) scores = scores + bias;
          if (masked) scores = where(keep > -1.f, scores, -1e30f);
          return product(s, v, y, v_first, softmax(scores, softened), w);
        },
        f32, drawn(q, false), drawn(k, false), drawn(v, false), drawn(s, true), drawn(s, true));
  }
}

// Completely masked rows: a mean of v, or NaN, as with single operations.
TEST(PlannedAttention, RowsThatAreMaskedWhole) {
  const Array q = numbers({20, 16}, f32, 1), k = numbers({36, 16}, f32, 2),
              v = numbers({36, 16}, f32, 3);
  for (const float masked : {-1e30f, -kInf}) {
    for (const int offset : {-1000000, -20, -5, 1000000}) {
      expect_attention(
          [masked, offset](Array q, Array k, Array v) {
            const Array s = matmul(q, transpose(k));
            return matmul(softmax(where(rows(20) + offset >= columns(36), s, masked)), v);
          },
          f32, q, k, v);
    }
  }
}

TEST(PlannedAttention, BlocksOfAMappedFunction) {
  const Mesh mesh = make_mesh({2, 4}, {"i", "j"});
  const auto body = [](Array q, Array k, Array v) {
    Array s = einsum("bqhd,bkhd->bhqk", q, k) * 0.25f;
    s = where(rows(12) >= columns(12), s, -1e30f);
    return einsum("bhqk,bkhd->bqhd", softmax(s), v);
  };
  const P spec("i", none, "j");
  const Array q = numbers({4, 12, 8, 16}, f32, 1), k = numbers({4, 12, 8, 16}, f32, 2),
              v = numbers({4, 12, 8, 16}, f32, 3);
  expect_attention(shard_map(body, mesh, {spec, spec, spec}, spec), f32, q, k, v);
  // The same for global arrays with these shardings.
  const auto put = [&](const Array& x) { return device_put(x, NamedSharding(mesh, spec)); };
  const auto planned = jit(body);
  const Array want = body(q, k, v);
  for (int call = 0; call < 3; ++call) expect_near(planned(put(q), put(k), put(v)), want, 2e-5);
  EXPECT_EQ(planned.plan_text().find("attention[causal_offset=0") != std::string::npos,
            has_kernel());
}

// A value that is the same on all devices is neither repeated nor cut into parts.
TEST(PlannedAttention, ABiasAndAMaskThatDevicesShare) {
  const Mesh mesh = make_mesh({2, 4}, {"i", "j"});
  const P spec("i", none, "j");
  const auto put = [&](const Array& x) { return device_put(x, NamedSharding(mesh, spec)); };
  const auto body = [](Array q, Array k, Array v, Array bias, Array keep) {
    const Array s = einsum("bqhd,bkhd->bhqk", q, k) * 0.25f + bias;
    return einsum("bhqk,bkhd->bqhd", softmax(where(keep, s, -1e30f)), v);
  };
  const Array q = numbers({4, 12, 8, 16}, f32, 1), k = numbers({4, 12, 8, 16}, f32, 2),
              v = numbers({4, 12, 8, 16}, f32, 3), bias = numbers({12, 12}, f32, 4),
              keep = numbers({12}, f32, 5) > -1.f;
  expect_attention(shard_map(body, mesh, {spec, spec, spec, P(), P()}, spec), f32, q, k, v, bias,
                   keep);
  const auto planned = jit(body);
  const Array want = body(q, k, v, bias, keep);
  for (int call = 0; call < 3; ++call)
    expect_near(planned(put(q), put(k), put(v), bias, keep), want, 2e-5);
  const std::string plan = planned.plan_text();
  EXPECT_EQ(plan.find("bias_dims=(-1, -1, 0, 1)") != std::string::npos, has_kernel()) << plan;
  EXPECT_EQ(plan.find("mask_dims=(-1, -1, -1, 0)") != std::string::npos, has_kernel()) << plan;
  EXPECT_EQ(plan.find("broadcast_in_dim") == std::string::npos, has_kernel()) << plan;
}

TEST(PlannedAttention, OfManyAndInALoop) {
  const auto one = [](Array q, Array k, Array v) {
    return einsum("hqk,khd->qhd", softmax(einsum("qhd,khd->hqk", q, k)), v);
  };
  const Array q = numbers({2, 12, 3, 16}, f32, 1), k = numbers({2, 12, 3, 16}, f32, 2),
              v = numbers({2, 12, 3, 16}, f32, 3);
  expect_attention(vmap(one), f32, q, k, v);
  expect_attention(vmap(vmap(one)), f32, expand_dims(q, 0), expand_dims(k, 0), expand_dims(v, 0));
  // Too many trips to be written out: the body has a plan of its own, but on the CPU, where so
  // small a loop is one task of its operations.
  const auto looped = [&](Array q, Array k, Array v) {
    return fori_loop(
        0, 200, [&](Array, Array x) { return one(tanh(x), k, v); }, q);
  };
  if (devices()[0].kind() == DeviceKind::cpu)
    expect_near(jit(looped)(q[0], k[0], v[0]), looped(q[0], k[0], v[0]), 2e-5);
  else
    expect_attention(looped, f32, q[0], k[0], v[0]);
}

TEST(PlannedAttention, DerivativesAreThoseOfAttention) {
  const Array q = numbers({12, 16}, f32, 1), k = numbers({12, 16}, f32, 2),
              v = numbers({12, 16}, f32, 3);
  const auto gradient =
      grad<0, 1, 2>([](Array q, Array k, Array v) { return sum(square(attend(q, k, v))); });
  const auto planned = jit(gradient);
  const auto [dq, dk, dv] = gradient(q, k, v);
  for (int call = 0; call < 3; ++call) {
    const auto [a, b, c] = planned(q, k, v);
    expect_near(a, dq, 2e-4);
    expect_near(b, dk, 2e-4);
    expect_near(c, dv, 2e-4);
  }
  EXPECT_TRUE(attends(planned.plan_text()));
}

TEST(PlannedAttention, ScoresAreNoArray) {
  // The closed-over value gives each function its own plans under jit.
  const float scale = 0.25f;
  const auto f = [scale](Array q, Array k, Array v) {
    Array s = einsum("qhd,khd->hqk", q, k) * scale;
    s = where(rows(96) >= columns(96), s, -1e30f);
    return sum(einsum("hqk,khd->qhd", softmax(s), v), 0);
  };
  const Array q = numbers({96, 2, 8}, f32, 1), k = numbers({96, 2, 8}, f32, 2),
              v = numbers({96, 2, 8}, f32, 3);
  const std::int64_t scores = 2 * 96 * 96 * 4, mask = 96 * 96;
  const auto bytes = [&] {
    const auto planned = jit(f);
    for (int call = 0; call < 3; ++call) planned(q, k, v);
    return test::planned_bytes(planned.plan_text());
  };
  const std::int64_t with = bytes();
  ASSERT_GE(with, 0);
  EXPECT_EQ(with < 96 * 2 * 8 * 4 + mask, has_kernel()) << with;
  ASSERT_EQ(setenv("SHMAP_ATTENTION", "0", 1), 0);
  EXPECT_FALSE(has_kernel());
  const std::int64_t without = bytes();
  unsetenv("SHMAP_ATTENTION");
  EXPECT_GE(without, scores);
}

TEST(PlannedAttention, IsTurnedOff) {
  ASSERT_EQ(setenv("SHMAP_ATTENTION", "0", 1), 0);
  const auto planned = jit([](Array q, Array k, Array v) { return attend(q, k, v); });
  const Array q = numbers({12, 16}, f32, 1);
  expect_near(planned(q, q, q), attend(q, q, q), 2e-5);
  unsetenv("SHMAP_ATTENTION");
  EXPECT_FALSE(attends(planned.plan_text()));
}

}  // namespace
}  // namespace shmap
