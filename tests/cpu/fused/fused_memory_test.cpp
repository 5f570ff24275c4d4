// Which results of a fused program may be written over which operands.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/cpu/fused/fused_plan.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/runtime/fused_program.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using Operands = std::vector<std::uint32_t>;  // bits, for each result
Operands overwrites(const FusedProgram& program) {
  return cpu::make_fused_steps(program).overwrites;
}

TEST(FusedMemory, AChainTakesTheMemoryOfADonatedOperand) {
  FusedProgram program(1, 1000);
  const int x = program.add_input(f32, FusedKind::full);
  program.add_output(program.add_map(neg_p, {program.add_map(exp_p, {x})}),
                     ShapedArray({1000}, f32));
  EXPECT_EQ(overwrites(program), Operands{0b1});
}

TEST(FusedMemory, AnOperandReadAfterTheResultIsNotOverwritten) {
  FusedProgram program(1, 1000);
  const int x = program.add_input(f32, FusedKind::full);
  const int y = program.add_map(exp_p, {x});
  const int z = program.add_map(add_p, {y, x});
  program.add_output(y, ShapedArray({1000}, f32));
  program.add_output(z, ShapedArray({1000}, f32));
  EXPECT_EQ(overwrites(program), (Operands{0b0, 0b1}));
}

// A program like the derivative of a gated activation: in the program's order the first result
// would be written before others read what it is computed from. Here the second one is written
// first.
TEST(FusedMemory, ResultsThatNothingReadsAreWrittenLast) {
  FusedProgram program(1, 1000);
  const int x = program.add_input(f32, FusedKind::full),
            y = program.add_input(f32, FusedKind::full);
  const int gate = program.add_map(logistic_p, {x});
  program.add_output(program.add_map(mul_p, {gate, x}), ShapedArray({1000}, f32));
  program.add_output(
      program.add_map(add_p, {program.add_map(mul_p, {gate, y}), program.add_map(mul_p, {x, y})}),
      ShapedArray({1000}, f32));
  EXPECT_EQ(overwrites(program), (Operands{0b11, 0b10}));
}

TEST(FusedMemory, OnlyOperandsWithTheElementsOfTheResultAreOverwritten) {
  FusedProgram program(10, 10);
  const int full = program.add_input(f32, FusedKind::full),
            row = program.add_input(f32, FusedKind::row),
            col = program.add_input(f32, FusedKind::col),
            wide = program.add_input(f64, FusedKind::full);
  const int part = program.add_window(f32, {.first = 0, .pitch = 10, .of = 100});
  const int all = program.add_map(
      add_p, {program.add_map(mul_p, {full, col}), program.add_map(mul_p, {part, row})});
  const int wider = program.add_map(neg_p, {wide});
  const int total = program.add_map(add_p, {program.add_reduce(reduce_sum_p, all), row});
  program.add_output(all, ShapedArray({10, 10}, f32));
  program.add_output(wider, ShapedArray({10, 10}, f64));
  program.add_output(total, ShapedArray({10}, f32));
  EXPECT_EQ(overwrites(program), (Operands{0b00001, 0b01000, 0b00010}));
}

}  // namespace
}  // namespace shmap
