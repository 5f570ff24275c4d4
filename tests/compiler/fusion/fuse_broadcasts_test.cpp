// shmap-test: devices
// Broadcasts along outer and middle dims inside of fused programs: under jit the repeated values
// are never in memory, and the results are those of a call operation by operation, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/device/memory_space.h"
#include "core/device/runtime.h"
#include "core/ir/trace.h"
#include "core/runtime/fused_program.h"
#include "shmap/shmap.h"
#include "tests/support/memory_use.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

class FuseBroadcasts : public ::testing::Test {
 protected:
  void SetUp() override {
    ensure_started();  // which registers what devices can do
    if (!can_run_fused(runtime().backend().kind()))
      GTEST_SKIP() << "nothing is fused without NVRTC";
  }
};

bool on_gpus() { return runtime().backend().kind() == DeviceKind::cuda; }

Array numbers(const Shape& shape, DType dtype = f32) {
  return astype(sin(reshape(arange(shape.num_elements()), shape) * 1.7f) * 5.f, dtype);
}

int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// Compares with eager results, and expects one kernel and no broadcast in the plan.
template <class F, class... A>
void expect_one_kernel(F f, const A&... args) {
  expect_same_under_jit(f, Communication::no_more, args...);
  const auto jitted = jit(f);
  jitted(args...);
  const std::string plan = jitted.plan_text();
  EXPECT_EQ(count(plan, "compute %"), 1) << plan;
  EXPECT_EQ(count(plan, "broadcast_in_dim"), 0) << plan;
}

Array of_rows(const Array& a) { return a[{range(), none}]; }  // [n, d] as [n, 1, d]
Array of_groups(const Array& b) { return b[{none}]; }         // [k, d] as [1, k, d]

struct Sizes {
  std::int64_t n, k, d;
};
// Groups of less than a tile and of more, rows of one block and of several, and sizes that no
// vector divides. For GPUs fewer, because each is compiled, with rows of up to 768 elements, which
// are summed as a reduction sums them.
std::vector<Sizes> sizes() {
  if (on_gpus()) return {{7, 40, 3}, {13, 5, 16}, {5, 33, 300}};
  return {{7, 40, 3},  {13, 5, 17},  {50, 20, 8},  {9, 31, 47}, {6, 70, 48}, {3, 90, 64},
          {2, 50, 63}, {21, 3, 130}, {5, 33, 300}, {4, 3, 700}, {3, 2, 5000}};
}
std::vector<DType> dtypes() {
  if (on_gpus()) return {f32, bf16};
  return {f32, f64, bf16, f16, i32, i64, u8};
}

TEST_F(FuseBroadcasts, SumsOfDifferences) {
  for (const auto& [n, k, d] : sizes()) {
    for (const DType dtype : dtypes()) {
      SCOPED_TRACE(testing::Message() << n << "x" << k << "x" << d << " " << to_string(dtype));
      const Array a = numbers({n, d}, dtype), b = numbers({k, d}, dtype);
      expect_one_kernel([](Array a, Array b) { return sum(square(of_rows(a) - of_groups(b)), -1); },
                        a, b);
      expect_one_kernel([](Array a, Array b) { return max(abs(of_rows(a) * of_groups(b)), -1); }, a,
                        b);
    }
  }
}

TEST_F(FuseBroadcasts, WithoutReductions) {
  for (const auto& [n, k, d] : sizes()) {
    for (const DType dtype : dtypes()) {
      if (dtype == u8) continue;  // which a clamp does not take with a negative limit
      SCOPED_TRACE(testing::Message() << n << "x" << k << "x" << d << " " << to_string(dtype));
      const Array a = numbers({n, d}, dtype), b = numbers({k, d}, dtype);
      expect_one_kernel([](Array a, Array b) { return of_rows(a) * of_groups(b); }, a, b);
      expect_one_kernel(
          [](Array a, Array b) { return abs(of_rows(a) - of_groups(b)) * of_groups(b); }, a, b);
      // A select, a clamp and a bias of the columns.
      expect_one_kernel(
          [](Array a, Array b, Array c) {
            return where(of_rows(a) < of_groups(b), clip(of_rows(a) + of_groups(b), -2, 3) + c,
                         of_groups(b));
          },
          a, b, numbers({d}, dtype));
    }
  }
}

TEST_F(FuseBroadcasts, NumbersOfRowsThatRepeat) {
  for (const DType dtype : dtypes()) {
    // A scale and a shift of each channel of a batch of images.
    expect_one_kernel(
        [](Array x, Array scale, Array shift) {
          return maximum(x * scale[{range(), none, none}] + shift[{range(), none, none}], 0);
        },
        numbers({3, 5, 7, 9}, dtype), numbers({5}, dtype), numbers({5}, dtype));
    // Numbers of rows beside a reduction of these.
    expect_one_kernel(
        [](Array x, Array a, Array b) {
          return sum(abs(x), -1) * a[{range(), none}] + minimum(b, max(x, -1));
        },
        numbers({6, 35, 19}, dtype), numbers({6}, dtype), numbers({35}, dtype));
  }
}

TEST_F(FuseBroadcasts, OfManyDims) {
  const Array x = numbers({2, 3, 4, 5, 70});
  for (const Shape& shape : std::vector<Shape>{{2, 1, 1, 1, 70},
                                               {1, 3, 1, 1, 70},
                                               {3, 4, 1, 70},
                                               {2, 3, 1, 5, 1},
                                               {1, 3, 4, 1, 1},
                                               {4, 1, 70},
                                               {2, 1, 1, 1, 1},
                                               {5, 70},
                                               {3, 1, 1, 1}}) {
    SCOPED_TRACE(to_string(ShapedArray(shape, f32)));
    const bool neighbours = shape != Shape{2, 3, 1, 5, 1};
    const auto f = [](Array x, Array y) { return exp(x * 0.1f) - y * y; };
    const auto g = [](Array x, Array y) { return sum(square(x - y), -1); };
    if (neighbours) {
      expect_one_kernel(g, x, numbers(shape));
    } else {  // the broadcast is written out
      expect_same_under_jit(f, Communication::no_more, x, numbers(shape));
      expect_same_under_jit(g, Communication::no_more, x, numbers(shape));
    }
  }
}

// A broadcast that is visited later makes the program's rows shorter.
TEST_F(FuseBroadcasts, SeveralInOneProgram) {
  expect_one_kernel(
      [](Array x, Array a, Array b, Array c) {
        const Array y = x * of_groups(b) + 1;
        return exp(y * c - of_rows(a)) / (square(x) + of_groups(b));
      },
      numbers({6, 10, 40}), numbers({6, 40}), numbers({10, 40}), numbers({40}));
}

TEST_F(FuseBroadcasts, WhatIsComputedBefore) {
  const auto f = [](Array a, Array b) {
    const Array c = exp(a * 0.2f) + 1, e = tanh(b);
    return std::vector{sum(square(of_rows(c) - of_groups(e)), -1), c * 2, sum(e, -1)};
  };
  expect_same_under_jit(f, Communication::no_more, numbers({30, 20}), numbers({40, 20}));
  // The same array as rows of its own, and repeated.
  expect_same_under_jit(
      [](Array a, Array x) {
        const Array y = x + 1;
        return (y - of_groups(y[0])) * of_rows(y[{range(), 0}]) + of_rows(a);
      },
      Communication::no_more, numbers({12, 33}), numbers({12, 9, 33}));
}

// Sums of columns make some rows of the program at a time.
TEST_F(FuseBroadcasts, BelowReductionsOfOuterDims) {
  std::vector<Sizes> all = {{9, 40, 70}};
  if (!on_gpus()) all.insert(all.end(), {{40, 9, 65}, {6, 100, 300}, {70, 64, 64}});
  for (const auto& [n, k, d] : all) {
    for (const DType dtype : {f32, bf16, i32}) {
      const Array x = numbers({n, k, d}, dtype), a = numbers({n, d}, dtype),
                  b = numbers({k, d}, dtype);
      const auto f = [](Array x, Array a, Array b) {
        return sum(abs(x - of_groups(b)) * of_rows(a), {0, 1});
      };
      if (on_gpus())
        expect_same_under_jit(f, Communication::no_more, x, a, b);
      else
        expect_one_kernel(f, x, a, b);
      expect_same_under_jit(
          [](Array a, Array b) { return sum(square(of_rows(a) - of_groups(b)), 0); },
          Communication::no_more, a, b);
    }
  }
}

TEST_F(FuseBroadcasts, OfNoElements) {
  for (const auto& [n, k, d] : std::vector<Sizes>{{0, 3, 5}, {3, 0, 5}, {3, 5, 0}, {0, 0, 0}}) {
    expect_same_under_jit(
        [](Array a, Array b) { return sum(square(of_rows(a) - of_groups(b)), -1); },
        Communication::no_more, numbers({n, d}), numbers({k, d}));
    expect_same_under_jit([](Array a, Array b) { return exp(of_rows(a) - of_groups(b)); },
                          Communication::no_more, numbers({n, d}), numbers({k, d}));
  }
}

TEST_F(FuseBroadcasts, GradientsAndVmap) {
  const auto loss = [](Array a, Array b) {
    return sum(exp(sum(square(of_rows(a) - of_groups(b)), -1) * -0.01f));
  };
  const Array a = numbers({20, 12}), b = numbers({15, 12});
  expect_same_under_jit([=](Array a, Array b) { return grad(loss)(a, b); }, Communication::no_more,
                        a, b);
  const auto distances = [](Array a, Array b) {
    return sum(square(of_rows(a) - of_groups(b)), -1);
  };
  expect_same_under_jit([=](Array a, Array b) { return vmap(distances)(a, b); },
                        Communication::no_more, numbers({3, 20, 12}), numbers({3, 15, 12}));
  expect_same_under_jit(
      [=](Array a, Array b) { return vmap([=](Array a) { return distances(a, b); })(a); },
      Communication::no_more, numbers({3, 20, 12}), numbers({15, 12}));
}

TEST_F(FuseBroadcasts, OfSplitArrays) {
  const Mesh mesh = make_mesh({8}, {"i"});
  const Array a = numbers({40, 12}), b = numbers({16, 12});
  const auto distances = [](Array a, Array b) {
    return sum(square(of_rows(a) - of_groups(b)), -1);
  };
  for (const auto& [of_a, of_b] :
       std::vector<std::pair<P, P>>{{P("i"), P()}, {P(), P("i")}, {P("i"), P("i")}}) {
    expect_same_under_jit(distances, Communication::no_more, device_put(a, {mesh, of_a}),
                          device_put(b, {mesh, of_b}));
  }
  expect_same_under_jit(shard_map(distances, mesh, {P("i"), P()}, P("i")), Communication::no_more,
                        a, b);
}

// A random program on arrays that broadcast together, with reductions of inner dims; some of its
// values.
std::vector<Array> random_program(unsigned seed, std::vector<Array> values) {
  std::mt19937 engine(seed);
  const auto below = [&](std::size_t n) { return engine() % n; };
  const auto any = [&] {  // prefers late values
    const std::size_t n = values.size();
    return values[below(2) ? below(n) : n - 1 - below(std::min<std::size_t>(n, 3))];
  };
  for (std::size_t ops = 4 + below(8); ops > 0; --ops) {
    const Array x = any(), y = any();
    switch (below(7)) {
      case 0:
        values.push_back(tanh(x) + y);
        break;
      case 1:
        values.push_back(x - y);
        break;
      case 2:
        values.push_back(x * y);
        break;
      case 3:
        values.push_back(where(x < y, x, y * 0.5f));
        break;
      case 4:
        values.push_back(exp(minimum(x, 1)) - maximum(x, y));
        break;
      default: {
        const std::int64_t rank = x.ndim(), dims = 1 + static_cast<std::int64_t>(below(2));
        if (rank < dims) break;
        Dims axes;
        for (std::int64_t d = rank - dims; d < rank; ++d) axes.push_back(d);
        values.push_back(below(2) ? sum(x, axes, true) : max(x * y, Dims{-1}, true));
      }
    }
    values.back() = tanh(values.back());  // so that all stay near 0
  }
  return {values.back(), values[values.size() - 2], values[values.size() - 4]};
}

TEST_F(FuseBroadcasts, RandomPrograms) {
  std::mt19937 engine(3);
  const auto one_of = [&](const auto& list) { return list[engine() % list.size()]; };
  std::vector<std::int64_t> extents = {1, 2, 3, 5, 8, 20};
  if (!on_gpus()) extents.insert(extents.end(), {49, 64});  // see sizes()
  for (unsigned seed = 0; seed < (on_gpus() ? 4 : 300); ++seed) {
    SCOPED_TRACE(seed);
    Shape whole;
    for (std::size_t d = 2 + engine() % 3; d > 0; --d) whole.push_back(one_of(extents));
    if (whole.num_elements() > 100000) continue;
    const DType dtype = one_of(std::vector{f32, f32, f64, bf16, f16});
    std::vector<Array> args;
    for (int i = 0; i < 5; ++i) {
      Shape shape;
      for (std::size_t d = i > 0 ? engine() % 2 : 0; d < whole.size(); ++d)
        shape.push_back(i > 0 && engine() % 2 ? 1 : whole[d]);
      args.push_back(numbers(shape, dtype) + static_cast<float>(i));
    }
    expect_same_under_jit([=](std::vector<Array> x) { return random_program(seed, x); },
                          Communication::no_more, args);
    if (HasFailure()) return;
  }
}

TEST_F(FuseBroadcasts, NoBroadcastIsInMemory) {
  const Array a = numbers({60, 64}), b = numbers({50, 64});
  const auto f = jit([](Array a, Array b) { return sum(square(of_rows(a) - of_groups(b)), -1); });
  f(a, b).block_until_ready();
  const std::vector<std::int64_t> before = bytes_in_use();
  for (MemorySpace* space : runtime().backend().spaces()) space->reset_peak();
  f(a, b).block_until_ready();
  runtime().backend().synchronize();
  std::size_t i = 0;
  for (MemorySpace* space : runtime().backend().spaces())
    EXPECT_LT(space->peak_bytes() - before[i++], 60 * 50 * 64 * 4);
}

}  // namespace
}  // namespace shmap::test
