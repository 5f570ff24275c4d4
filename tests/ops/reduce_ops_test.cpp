// shmap-test: devices
// Reductions over every set of dims: against plain loops, split in parts, and on blocks
// inside a body.
#include "core/ops/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/runtime/kernel.h"
#include "shmap/mesh.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "shmap/shard_map.h"

namespace shmap {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Small whole numbers out of order, whose sums are exact.
template <class T>
std::vector<T> numbers(const Shape& shape) {
  std::vector<T> out(static_cast<std::size_t>(shape.num_elements()));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<T>(static_cast<float>((i * 37 + i / 11) % 17) - 8);
  return out;
}

Dims dims_of(std::uint32_t mask) {
  std::vector<int> out;
  for (int d = 0; d < kMaxRank; ++d)
    if (mask >> d & 1u) out.push_back(d);
  return Dims(out);
}

// A plain loop over all elements: out[index of those kept] = f(out[…], element).
template <class T, class F>
std::vector<T> reference(const std::vector<T>& in, const Shape& shape, std::uint32_t mask, T start,
                         F f) {
  std::int64_t results = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) results *= mask >> d & 1u ? 1 : shape[d];
  std::vector<T> out(static_cast<std::size_t>(results), start);
  for (std::size_t i = 0; i < in.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), at = 0, stride = 1;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      if (mask >> d & 1u) continue;
      at += rest % shape[d] * stride;
      stride *= shape[d];
    }
    T& o = out[static_cast<std::size_t>(at)];
    o = f(o, in[i]);
  }
  return out;
}

template <class F>
void expect_error(const F& f, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown, and wanted: " << part;
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("reduce_ops_test.cpp:"), std::string::npos) << e.what();
  }
}

TEST(Reduce, EverySetOfDims) {
  for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{3, 1, 2, 1, 4}, Shape{1, 1}, Shape{}}) {
    const auto ints = numbers<std::int32_t>(shape);
    const auto floats = numbers<float>(shape);
    const Array i = array(ints, shape), f = array(floats, shape);
    for (std::uint32_t mask = 0; mask < 1u << shape.size(); ++mask) {
      SCOPED_TRACE(to_string(shape) + " mask " + std::to_string(mask));
      const Dims dims = dims_of(mask);
      const auto total =
          reference(ints, shape, mask, 0, [](std::int32_t a, std::int32_t b) { return a + b; });
      EXPECT_EQ(sum(i, dims).to_vector<std::int32_t>(), total);
      EXPECT_EQ(sum(f, dims).to_vector<float>(), std::vector<float>(total.begin(), total.end()));
      EXPECT_EQ(
          max(f, dims).to_vector<float>(),
          reference(floats, shape, mask, -kInf, [](float a, float b) { return a < b ? b : a; }));
      EXPECT_EQ(
          min(f, dims).to_vector<float>(),
          reference(floats, shape, mask, kInf, [](float a, float b) { return b < a ? b : a; }));
      EXPECT_EQ(prod(i, dims).to_vector<std::int32_t>(),
                reference(ints, shape, mask, 1, [](std::int32_t a, std::int32_t b) {
                  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) *
                                                   static_cast<std::uint32_t>(b));
                }));
      Shape kept = shape;
      for (std::size_t d = 0; d < shape.size(); ++d)
        if (mask >> d & 1u) kept[d] = 1;
      EXPECT_EQ(sum(i, dims, true).shape(), kept);
      EXPECT_EQ(sum(i, dims, true).to_vector<std::int32_t>(), total);
    }
  }
}

TEST(Reduce, LargeArraysInParts) {
  struct Case {
    Shape shape;
    std::uint32_t mask;
  };
  const Case cases[] = {{{300'000}, 1},      {{3, 150'000}, 2},      {{4, 70'000}, 2},
                        {{70'000, 4}, 1},    {{100, 3000}, 1},       {{3, 50, 2000}, 2},
                        {{40, 30, 300}, 5},  {{7, 5, 40, 300}, 10},  {{6, 50, 7, 30, 5}, 21},
                        {{30'000, 3, 4}, 5}, {{3, 9, 70, 8, 90}, 26}};
  for (const Case& c : cases) {
    SCOPED_TRACE(to_string(c.shape) + " mask " + std::to_string(c.mask));
    const auto plus = [](auto a, auto b) { return static_cast<decltype(a)>(a + b); };
    const auto ints = numbers<std::int32_t>(c.shape);
    const auto total = reference(ints, c.shape, c.mask, 0, plus);
    EXPECT_EQ(sum(array(ints, c.shape), dims_of(c.mask)).to_vector<std::int32_t>(), total);
    EXPECT_EQ(sum(array(numbers<float>(c.shape), c.shape), dims_of(c.mask)).to_vector<float>(),
              std::vector<float>(total.begin(), total.end()));
    // In bf16 each result is rounded once.
    std::vector<bfloat16> rounded;
    for (std::int32_t t : total) rounded.push_back(static_cast<bfloat16>(static_cast<float>(t)));
    const auto halves = sum(array(numbers<bfloat16>(c.shape), c.shape), dims_of(c.mask));
    const auto got = halves.to_vector<bfloat16>();
    for (std::size_t i = 0; i < rounded.size(); ++i)
      ASSERT_EQ(static_cast<float>(got[i]), static_cast<float>(rounded[i])) << i;
  }
}

TEST(Reduce, HalfTypesAreRoundedOnce) {
  // 3 x 2049 = 6147, and of f16 there are 6144 and 6148; rounded before, 2049 would be 2048.
  const Array ones = astype(array(std::vector<float>(3 * 2 * 2049, 1.f), {3, 2, 2049}), f16);
  EXPECT_EQ(astype(sum(ones, {0, 2}), f32).to_vector<float>(), (std::vector<float>{6148, 6148}));
  EXPECT_EQ(astype(mean(astype(array<float>({60000, 60000}, {2}), f16)), f32).item<float>(),
            astype(astype(Array(60000.f), f16), f32).item<float>());
}

// The same bits in however many parts a call is run.
TEST(Reduce, PartsDoNotShow) {
  const Array started = array<float>({1}, {1});  // registers the kernels
  struct Case {
    Shape shape;
    Dims axes;
  };
  const Case cases[] = {{{300'000}, {0}},          {{3, 200'000}, {1}},
                        {{40, 7000}, {1}},         {{700, 3000}, {0}},
                        {{3, 200, 1500}, {1}},     {{30, 40, 300}, {0, 2}},
                        {{4, 3, 50, 700}, {1, 3}}, {{3, 20, 7, 30, 5}, {0, 2, 4}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(to_string(c.shape));
    std::vector<float> in(static_cast<std::size_t>(c.shape.num_elements()));
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = std::sin(static_cast<float>(i)) * std::exp2(static_cast<float>(i % 23));
    const ReduceParams params(c.axes);
    const ShapedArray in_type[1] = {ShapedArray(c.shape, f32)};
    ShapedArray out_type[1];
    infer_types(reduce_sum_p, in_type, params, nullptr, out_type);
    const Kernel& kernel = reduce_sum_p.kernel(DeviceKind::cpu);
    std::vector<std::vector<float>> results;
    for (int parts : {1, 2, 3, 7, 16}) {
      std::vector<float> out(static_cast<std::size_t>(out_type[0].size()), kNaN);
      const void* ins[1] = {in.data()};
      void* outs[1] = {out.data()};
      KernelCall call{ins, outs, in_type, out_type, params};
      call.parts = std::min(parts, kernel.parts(call, parts));
      std::vector<std::byte> scratch;
      if (call.parts > 1) scratch.resize(static_cast<std::size_t>(kernel.scratch(call)));
      if (!scratch.empty()) call.scratch = scratch.data();
      for (call.part = 0; call.part < call.parts; ++call.part) kernel.run(call);
      if (call.scratch) kernel.finish(call);
      results.push_back(std::move(out));
    }
    for (const auto& r : results) {
      EXPECT_EQ(std::memcmp(r.data(), results[0].data(), r.size() * sizeof(float)), 0);
    }
    double most = 0;
    for (float v : results[0]) most = std::max<double>(most, std::isnan(v) ? kInf : std::abs(v));
    EXPECT_LT(most, kInf);
  }
}

TEST(Reduce, Dtypes) {
  const Array b = array<bool>({true, false, true}, {3});
  EXPECT_EQ(sum(b).type(), ShapedArray({}, i32));
  EXPECT_EQ(sum(b).item<std::int32_t>(), 2);
  EXPECT_EQ(prod(b).dtype(), i32);
  EXPECT_EQ(max(b).dtype(), bool_);
  EXPECT_TRUE(max(b).item<bool>());
  EXPECT_FALSE(min(b).item<bool>());
  const Array i = array<std::int32_t>({1, 2, 4}, {3});
  EXPECT_EQ(sum(i).dtype(), i32);
  EXPECT_EQ(mean(i).dtype(), f32);
  EXPECT_FLOAT_EQ(mean(i).item<float>(), 7.f / 3);
  EXPECT_EQ(mean(astype(i, i64)).dtype(), f64);
  EXPECT_EQ(var(i).dtype(), f32);
  EXPECT_FLOAT_EQ(var(i).item<float>(), 14.f / 9);
  EXPECT_EQ(any(i).dtype(), bool_);
  EXPECT_EQ(argmax(i).dtype(), i32);
  EXPECT_EQ(logsumexp(i).dtype(), f32);
  EXPECT_EQ(sum(astype(i, i8)).dtype(), i8);
  EXPECT_EQ(sum(array<std::uint8_t>({200, 100}, {2})).item<std::uint8_t>(), 44);
  EXPECT_EQ(sum(3.f).item<float>(), 3);
  EXPECT_EQ(mean(3).item<float>(), 3);
}

TEST(Reduce, IndicesOfExtremes) {
  const Array x = array<float>({1, 5, 5, kNaN, 9, kNaN, -0.f, 0.f, -1}, {3, 3});
  EXPECT_EQ(argmax(x, 1).to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 0, 0}));
  EXPECT_EQ(argmin(x, -1).to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 2}));
  EXPECT_EQ(argmax(x).item<std::int32_t>(), 3);
  EXPECT_EQ(argmax(x, {0}, true).shape(), (Shape{1, 3}));
  EXPECT_EQ(argmin(Array(2.f)).item<std::int32_t>(), 0);
  const Shape shape{5, 300, 40};
  const auto values = numbers<float>(shape);
  const auto got = argmax(array(values, shape), 1).to_vector<std::int32_t>();
  for (int o = 0; o < 5; ++o) {
    for (int k = 0; k < 40; ++k) {
      const auto at = [&](int r) {
        return values[static_cast<std::size_t>((o * 300 + r) * 40 + k)];
      };
      const int found = got[static_cast<std::size_t>(o * 40 + k)];
      for (int r = 0; r < 300; ++r)
        ASSERT_TRUE(r < found ? at(r) < at(found) : at(r) <= at(found)) << o << " " << k;
    }
  }
}

TEST(Reduce, NothingToReduce) {
  const Array x = zeros({0, 3});
  EXPECT_EQ(sum(x, 0).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(prod(x, 0).to_vector<float>(), (std::vector<float>{1, 1, 1}));
  EXPECT_TRUE(all(x).item<bool>());
  EXPECT_FALSE(any(x).item<bool>());
  EXPECT_TRUE(std::isnan(mean(x).item<float>()));
  EXPECT_EQ(logsumexp(x).item<float>(), -kInf);
  EXPECT_EQ(max(x, 1).shape(), (Shape{0}));
  const Array y = array<float>({1, 2}, {2});
  EXPECT_EQ(sum(y, {}).to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(any(y, {}).to_vector<bool>(), (std::vector<bool>{true, true}));
}

TEST(Reduce, ErrorsSayWhatWasGiven) {
  const Array x = zeros({2, 3});
  expect_error([&] { sum(x, 2); }, "sum: dim 2 is out of range for an array of rank 2");
  expect_error([&] { mean(x, -3); }, "mean: dim -3 is out of range for an array of rank 2");
  expect_error([&] { prod(x, {0, 1, -1}); }, "prod: dim 1 is given twice");
  expect_error([&] { max(zeros({0, 3}), 0); }, "max: dim 0 of an array of shape (0, 3) is empty");
  expect_error([&] { min(zeros({3, 0})); }, "min: dim 1 of an array of shape (3, 0) is empty");
  expect_error([&] { argmax(zeros({3, 0}), 1); }, "argmax: dim 1");
  expect_error([&] { argmin(zeros({0})); }, "is empty");
  expect_error([&] { argmax(x, {0, 1}); }, "argmax: over 2 dims of an array of rank 2");
  expect_error([&] { sum(Array()); }, "sum");
}

TEST(Reduce, BlocksInABody) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Shape shape{8, 4};
  const auto values = numbers<float>(shape);
  const Array x = array(values, shape);
  std::vector<std::string> types;
  const auto f = shard_map(
      [&](Array block) {
        const Array rows = sum(block, 1), one = mean(rows), where = argmax(block, 0);
        types = {to_string(rows.type()), to_string(one.type()), to_string(where.type()),
                 to_string(max(Array(1.f)).type())};
        return rows;
      },
      mesh, P("i", "j"), P(axes("i", "j")));
  const auto got = f(x).to_vector<float>();
  EXPECT_EQ(types, (std::vector<std::string>{"f32[2]{i,j}", "f32[]{i,j}", "i32[2]{i,j}", "f32[]"}));
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 2; ++j)
      for (int r = 0; r < 2; ++r) {
        const auto at = static_cast<std::size_t>((i * 2 + r) * 4 + j * 2);
        EXPECT_EQ(got[static_cast<std::size_t>((i * 2 + j) * 2 + r)], values[at] + values[at + 1]);
      }
}

}  // namespace
}  // namespace shmap
