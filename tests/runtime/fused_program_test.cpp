// A fused program as data: its text, and what it refuses.
#include <gtest/gtest.h>

#include <memory>

#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"
#include "core/runtime/fused_program.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

TEST(FusedProgram, PrintsItself) {
  FusedProgram program(4, 8);
  const int x = program.add_input(f32, FusedKind::full);
  const int scale = program.add_input(f32, FusedKind::col);
  const float two = 2;
  const int doubled = program.add_map(mul_p, {x, program.add_literal(f32, &two)});
  const int most = program.add_reduce(reduce_max_p, doubled);
  const int less = program.add_map(sub_p, {doubled, most});
  const int half = program.add_map(convert_element_type_p, {program.add_map(mul_p, {less, scale})},
                                   std::make_shared<ConvertParams>(bf16));
  program.add_output(half, ShapedArray({4, 8}, bf16));
  program.add_output(most, ShapedArray({4}, f32));
  EXPECT_EQ(program.text(),
            "[4,8] (a:f32 b:f32/col) c:f32 = mul a 2.0; d:f32/row = reduce_max c; e:f32 = sub c d; "
            "f:f32 = mul e b; g:bf16 = convert_element_type[new_dtype=bfloat16 weak_type=False] f "
            "-> g d");
}

TEST(FusedProgram, PrintsWhichRowsRepeat) {
  FusedProgram program(12, 5);
  const int x = program.add_repeated(f32, FusedKind::full, {4, 3});
  const int y = program.add_repeated(f32, FusedKind::full, {1, 4});
  const int z = program.add_repeated(f32, FusedKind::row, {2, 3});
  const int sum = program.add_map(add_p, {program.add_map(mul_p, {x, y}), z});
  program.add_output(sum, ShapedArray({3, 4, 5}, f32));
  EXPECT_EQ(program.text(),
            "[12,5] (a:f32[/4%3] b:f32[/1%4] c:f32/row[/2%3]) d:f32 = mul a b; e:f32 = add d c -> "
            "e");
  EXPECT_EQ(program.operand_size(program.inputs()[0]), 15);
  EXPECT_EQ(program.operand_size(program.inputs()[1]), 20);
  EXPECT_EQ(program.operand_size(program.inputs()[2]), 3);
  EXPECT_EQ(program.cost().bytes, 4 * (15 + 20 + 3 + 60));
}

TEST(FusedProgram, RefusesRowsThatAreNoWholeRepetitions) {
  FusedProgram program(12, 5);
  EXPECT_THROW(program.add_repeated(f32, FusedKind::full, {5, 2}), ValueError);
  EXPECT_THROW(program.add_repeated(f32, FusedKind::full, {4, 6}), ValueError);
  EXPECT_THROW(program.add_repeated(f32, FusedKind::full, {0, 3}), ValueError);
  EXPECT_THROW(program.add_repeated(f32, FusedKind::full, {4, 0}), ValueError);
  EXPECT_THROW(program.add_repeated(f32, FusedKind::col, {1, 3}), ValueError);
  FusedProgram nothing(0, 5);
  EXPECT_THROW(nothing.add_repeated(f32, FusedKind::full, {1, 1}), ValueError);
}

TEST(FusedProgram, RefusesWhatDoesNotFit) {
  FusedProgram program(4, 8);
  const int x = program.add_input(f32, FusedKind::full);
  const int n = program.add_input(i32, FusedKind::full);
  EXPECT_THROW(program.add_map(add_p, {x, n}), TypeError);
  EXPECT_THROW(program.add_output(x, ShapedArray({4, 8}, f32)), ValueError);
  const int most = program.add_reduce(reduce_max_p, x);
  EXPECT_THROW(program.add_reduce(reduce_max_p, most), ValueError);
  EXPECT_THROW(program.add_output(most, ShapedArray({5}, f32)), ValueError);
  EXPECT_THROW(program.add_broadcast(x, FusedKind::row), ValueError);
}

}  // namespace
}  // namespace shmap
