// lower_program: a fused program as operations in stages, on values without memory. A broadcast is
// no operation of its own: what reads its result reads the operand, as it is or repeated.
#pragma once
#include <cstdint>
#include <vector>

#include "core/cpu/fused/lowered_op.h"

namespace shmap::cpu {

struct LoweredProgram {
  FusedStepList list;  // its tiles, constants, draws and rows that repeat; no steps yet
  std::vector<LoweredValue> values;
  std::vector<int> operands;   // the values that are operands of the call, in order
  std::vector<LoweredOp> ops;  // not in the order of their stages
};

// around_bytes, by_rows: see make_fused_steps. tile_bytes: see cut_into_tiles.
LoweredProgram lower_program(const FusedProgram& program, std::int64_t around_bytes, bool by_rows,
                             std::int64_t tile_bytes);

}  // namespace shmap::cpu
