// shmap-test: devices
// Results of fused operations use the memory of operands that die there: each result takes one that
// the program has read by then, and values are those of the operations one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/device/runtime.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/runtime/fused_program.h"
#include "shmap/shmap.h"
#include "tests/support/planned_bytes.h"

namespace shmap {
namespace {

using ::testing::HasSubstr;

class FusedResults : public ::testing::Test {
 protected:
  void SetUp() override {
    ensure_started();  // which registers what devices can do
    if (!can_run_fused(runtime().backend().kind()))
      GTEST_SKIP() << "nothing is fused without NVRTC";
  }
};

const void* place(const Array& x) { return stored_of(x)->blocks()[0].data(); }

Array numbers(const Shape& shape, int step) {
  return reshape(astype(remainder(arange(shape.num_elements()) * step, 17), f32), shape) / 8.f -
         1.f;
}

std::vector<float> values(const Array& x) { return x.to_vector<float>(); }

// (x y + 1, x y - 1)
std::shared_ptr<FusedProgram> two_results(std::int64_t n) {
  auto program = std::make_shared<FusedProgram>(1, n);
  const int x = program->add_input(f32, FusedKind::full),
            y = program->add_input(f32, FusedKind::full);
  const float one = 1;
  const int product = program->add_map(mul_p, {x, y}), literal = program->add_literal(f32, &one);
  program->add_output(program->add_map(add_p, {product, literal}), ShapedArray({n}, f32));
  program->add_output(program->add_map(sub_p, {product, literal}), ShapedArray({n}, f32));
  return program;
}

std::vector<Array> run(const std::shared_ptr<FusedProgram>& program, std::vector<Array> operands) {
  return bind_all(fused_p, operands, FusedParams(program), {});
}

TEST_F(FusedResults, EachTakesAnOperandOfItsOwn) {
  constexpr std::int64_t kSize = 5000;
  const Array x = numbers({kSize}, 3), y = numbers({kSize}, 5);
  const std::vector<float> more = values(x * y + 1.f), less = values(x * y - 1.f);
  std::vector<Array> operands = {x + 0.f, y + 0.f};
  const void *first = place(operands[0]), *second = place(operands[1]);
  const std::vector<Array> got = run(two_results(kSize), std::move(operands));
  EXPECT_EQ(place(got[0]), first);
  EXPECT_EQ(place(got[1]), second);
  EXPECT_EQ(values(got[0]), more);
  EXPECT_EQ(values(got[1]), less);
}

TEST_F(FusedResults, TakeNothingThatSomebodyHolds) {
  constexpr std::int64_t kSize = 5000;
  const Array x = numbers({kSize}, 3), y = numbers({kSize}, 5);
  const std::vector<float> kept = values(x), more = values(x * y + 1.f),
                           square = values(x * x - 1.f);
  std::vector<Array> operands = {x, y + 0.f};
  const void* given = place(operands[1]);
  const std::vector<Array> got = run(two_results(kSize), std::move(operands));
  EXPECT_EQ(place(got[0]), given);
  EXPECT_NE(place(got[1]), place(x));
  EXPECT_EQ(values(got[0]), more);
  EXPECT_EQ(values(x), kept);
  const Array twice = x + 0.f;
  const std::vector<Array> squares = run(two_results(kSize), {twice, twice});
  EXPECT_EQ(values(squares[1]), square);
  EXPECT_EQ(values(twice), kept);
}

// A step of an online softmax: the largest of each row so far, and the factor of the row's earlier
// sum.
TEST_F(FusedResults, OfRowsTakeOperandsOfRows) {
  for (const auto& [rows, cols] : {std::pair{40, 24}, std::pair{5, 5000}, std::pair{3, 40001}}) {
    SCOPED_TRACE(cols);
    auto program = std::make_shared<FusedProgram>(rows, cols);
    const int scores = program->add_input(f32, FusedKind::full);
    const int before = program->add_input(f32, FusedKind::row);
    const int most = program->add_map(max_p, {before, program->add_reduce(reduce_max_p, scores)});
    program->add_output(program->add_map(sub_p, {scores, most}), ShapedArray({rows, cols}, f32));
    program->add_output(most, ShapedArray({rows, 1}, f32));
    const Array x = numbers({rows, cols}, 7), m = numbers({rows, 1}, 5);
    const Array want = maximum(m, max(x, 1, true));
    std::vector<Array> operands = {x + 0.f, m + 0.f};
    const void *full = place(operands[0]), *row = place(operands[1]);
    const std::vector<Array> got = run(program, std::move(operands));
    EXPECT_EQ(place(got[0]), full);
    EXPECT_EQ(place(got[1]), row);
    EXPECT_EQ(values(got[0]), values(x - want));
    EXPECT_EQ(values(got[1]), values(want));
  }
}

struct Gated {
  Array hidden, up;
};
Gated gate(Array gated, Array up) {
  const Array s = logistic(gated);
  return {s * gated, up * s + up * gated * (s * (1.f - s))};
}

// As in the derivative of a gated layer: two products die where two results of their size are made.
TEST_F(FusedResults, OfAPlanNeedNoMoreThanItsOperands) {
  constexpr std::int64_t kRows = 256, kWide = 512;  // of a device
  const Mesh mesh = make_mesh({8}, {"i"});
  const auto layer = [](Array x, Array w, Array v, Array out) {
    const Gated g = gate(matmul(x, w), matmul(x, v));
    return matmul(g.hidden, out) + matmul(g.up, out);
  };
  const auto mapped = shard_map(layer, mesh, {P("i"), P(), P(), P()}, P("i"));
  const Array x = device_put(numbers({8 * kRows, 8}, 3), NamedSharding(mesh, P("i")));
  const Array w = numbers({8, kWide}, 5), v = numbers({8, kWide}, 7), out = numbers({kWide, 1}, 11);
  const std::vector<float> want = values(mapped(x, w, v, out));
  const auto planned = jit(mapped);
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> got = values(planned(x, w, v, out));
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-3) << "call " << call << ", element " << i;
  }
  const std::int64_t product = kRows * kWide * 4;
  const auto in_a_space =
      static_cast<std::int64_t>(8 / runtime().backend().spaces().size()) * product;
  const std::int64_t bytes = test::planned_bytes(planned.plan_text());
  ASSERT_THAT(planned.plan_text(), HasSubstr("fused"));
  EXPECT_GE(bytes, 2 * in_a_space);
  EXPECT_LT(bytes, 2 * in_a_space + in_a_space / 2);
}

// A state that is given up at each step, and another that a caller keeps.
TEST_F(FusedResults, OfDonatedArguments) {
  const Mesh mesh = make_mesh({8}, {"i"});
  const auto step = [](Array a, Array b) {
    const Gated g = gate(a, b);
    return std::pair{tanh(g.hidden), tanh(g.up)};
  };
  const auto mapped = shard_map(step, mesh, {P("i"), P("i")}, {P("i"), P("i")});
  const auto planned = jit(mapped);
  Array a = device_put(numbers({8 * 64, 40}, 3), NamedSharding(mesh, P("i")));
  Array b = device_put(numbers({8 * 64, 40}, 5), NamedSharding(mesh, P("i")));
  Array want_a = a + 0.f, want_b = b + 0.f;
  for (int k = 0; k < 8; ++k) {
    std::tie(want_a, want_b) = mapped(want_a, want_b);
    const std::vector<float> kept = values(a);
    const Array keep = k % 3 == 2 ? a : Array();
    std::tie(a, b) = planned(std::move(a), std::move(b));
    if (k % 3 == 2) {
      EXPECT_EQ(values(keep), kept);
    }
    EXPECT_EQ(values(a), values(want_a)) << k;
    EXPECT_EQ(values(b), values(want_b)) << k;
  }
}

// One task runs the loop's trips; the carry has its own memory.
TEST_F(FusedResults, OfALoopsCarry) {
  const auto loop = [](Array a, Array b) {
    return fori_loop(
        0, 9,
        [](Array, std::pair<Array, Array> c) {
          const Gated g = gate(c.first, c.second);
          return std::pair{tanh(g.hidden), tanh(g.up)};
        },
        std::pair{a, b});
  };
  const Array a = numbers({300}, 3), b = numbers({300}, 5);
  const auto [want_a, want_b] = loop(a, b);
  const auto planned = jit(loop);
  for (int call = 0; call < 4; ++call) {
    const auto [got_a, got_b] = planned(a, b);
    EXPECT_EQ(values(got_a), values(want_a)) << call;
    EXPECT_EQ(values(got_b), values(want_b)) << call;
  }
}

}  // namespace
}  // namespace shmap
