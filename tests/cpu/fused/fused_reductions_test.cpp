// Reductions of rows in fused programs, which take in the chain before them, against the same
// operations one by one, to the last bit.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>

#include "core/cpu/fused/fused_plan.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/runtime/fused_program.h"
#include "shmap/shmap.h"
#include "tests/support/fused_check.h"

namespace shmap {
namespace {

using testing::check_fused_case;
using testing::Random;
using Case = testing::FusedCase;

// The number of steps that reduce a chain's values, and of those that reduce stored values.
std::pair<int, int> reductions(const FusedProgram& program) {
  const cpu::FusedStepList list = cpu::make_fused_steps(program);
  std::pair<int, int> out;
  for (const cpu::FusedStep& step : list.steps) {
    out.first += step.kind == cpu::FusedStep::reduce_chain;
    out.second += step.kind == cpu::FusedStep::reduce;
  }
  return out;
}

// The sum and the maximum of (x - mean)² of each row, and x - mean, are computed again and not
// kept.
Case spread(std::int64_t rows, std::int64_t cols, DType dtype, bool special) {
  Case c;
  c.program = std::make_shared<FusedProgram>(rows, cols);
  Random random(static_cast<std::uint64_t>(cols));
  Array x = random.values(f32, {rows, cols});
  x = where(isfinite(x), x, 0.25f);
  if (special) {  // in the last column, the first, and the middle of one row
    x = where(arange(cols) == cols - 1, HUGE_VALF, x);
    x = where(logical_and(arange(cols) == cols / 2, reshape(arange(rows), {rows, 1}) == 0), NAN, x);
  }
  x = astype(x, dtype);
  c.operands.push_back(x);
  FusedProgram& p = *c.program;
  const int in = p.add_input(dtype, FusedKind::full);
  const int mean = p.add_reduce(reduce_max_p, in);
  const int centred = p.add_map(sub_p, {in, mean});
  const int squares = p.add_map(square_p, {centred});
  p.add_output(p.add_map(neg_p, {centred}), ShapedArray({rows, cols}, dtype));
  p.add_output(p.add_reduce(reduce_sum_p, squares), ShapedArray({rows}, dtype));
  p.add_output(p.add_reduce(reduce_max_p, p.add_map(abs_p, {in})), ShapedArray({rows}, dtype));
  const Array less = x - max(x, 1, true);
  c.results = {-less, sum(square(less), 1), max(abs(x), 1)};
  return c;
}

TEST(FusedReductions, ReductionsTakeInTheChainBeforeThem) {
  for (const DType dtype : {f32, bf16}) {
    for (const bool special : {false, true}) {
      for (const std::int64_t cols : {64, 65, 79, 127, 128, 769, 2047, 4096, 4097, 8200, 12289}) {
        const Case c = spread(cols < 1000 ? 7 : 2, cols, dtype, special);
        check_fused_case(c);
        if (HasFailure()) return;
        if (!cpu::chain_kernel(f32)) continue;
        // The maximum of a row has no operation before it, except the widening of bf16.
        EXPECT_EQ(reductions(*c.program), dtype == f32 ? std::pair(2, 1) : std::pair(3, 0));
      }
    }
  }
  const Case narrow = spread(9, 63, f32, true);
  check_fused_case(narrow);
  EXPECT_EQ(reductions(*narrow.program), std::pair(0, 3));
}

// Programs that only reduce take many rows at a time, also if the number of rows is not a multiple.
TEST(FusedReductions, RowsThatAreOnlyReduced) {
  for (const DType dtype : {f32, bf16}) {
    for (const auto& [rows, cols] : {std::pair{1, 2100}, std::pair{200, 2100}, std::pair{331, 515},
                                     std::pair{4500, 70}, std::pair{129, 8195}}) {
      SCOPED_TRACE(to_string(dtype) + std::to_string(cols));
      Case c;
      c.program = std::make_shared<FusedProgram>(rows, cols);
      Random random(static_cast<std::uint64_t>(cols));
      Array x = random.values(f32, {rows, cols});
      x = where(isfinite(x), x, 0.25f);
      // Infinity in one row, NaN in another.
      const Array row = reshape(arange(rows), {rows, 1}), column = arange(cols);
      x = where(logical_and(row == rows / 2, column == cols - 1), HUGE_VALF, x);
      x = astype(where(logical_and(row == rows - 1, column == cols / 3), NAN, x), dtype);
      c.operands.push_back(x);
      FusedProgram& p = *c.program;
      const int in = p.add_input(dtype, FusedKind::full);
      const int sum_of_squares = p.add_reduce(reduce_sum_p, p.add_map(square_p, {in}));
      p.add_output(p.add_map(sqrt_p, {sum_of_squares}), ShapedArray({rows}, dtype));
      c.results = {sqrt(sum(square(x), 1))};
      check_fused_case(c);
      if (HasFailure()) return;
      if (!cpu::chain_kernel(f32)) continue;
      const cpu::FusedStepList list = cpu::make_fused_steps(p);
      EXPECT_EQ(reductions(p), std::pair(1, 0));
      EXPECT_GT(list.tile_rows, rows >= 128 ? 1 : 0);
    }
  }
}

TEST(FusedReductions, ReductionsOfWhatOthersNeedReadIt) {
  FusedProgram program(5, 1000);
  const int x = program.add_input(f32, FusedKind::full);
  const int y = program.add_map(exp_p, {x});
  const int z = program.add_map(square_p, {y});
  program.add_output(z, ShapedArray({5, 1000}, f32));
  program.add_output(program.add_reduce(reduce_sum_p, z), ShapedArray({5}, f32));
  program.add_output(program.add_reduce(reduce_prod_p, program.add_map(neg_p, {x})),
                     ShapedArray({5}, f32));
  EXPECT_EQ(reductions(program), std::pair(0, 2));
}

}  // namespace
}  // namespace shmap
