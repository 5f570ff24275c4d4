// LoweredOp, LoweredValue: the form of a fused program between FusedProgram and FusedStepList:
// operations in stages, on values without memory.
#pragma once
#include <vector>

#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// Two numbers that are not stages: operands and literals; values that are computed once per call.
inline constexpr int kStageNever = -2, kStagePrologue = -1;

// The dtype of intermediate values. Only inputs and outputs of dtype bf16 are stored as bf16;
// intermediate values are f32, rounded where the single operations would round, so that they form
// chains as f32 values do.
inline DType computed_dtype(DType t) { return t == DType::bf16 ? DType::f32 : t; }

struct LoweredValue {
  DType dtype = DType::f32;
  FusedKind kind = FusedKind::full;
  int stage = kStageNever;  // the stage that makes it
  int made = -1;            // index of the op that makes it, in the final order; -1: an operand or
                            // a literal
  int last_use = -1;        // index of the last op that reads it
  int last_stage = kStageNever;
  int result = -1;       // the result in which the value is stored
  bool tiled = false;    // a row of columns, or rows that repeat, for each row of a tile
  bool part = false;     // an operand that is a window of a larger array, or whose
                         // rows repeat
  bool one_row = false;  // an operand of which the tile reads one row again and again
  ChainCode made_by = ChainCode::none;  // the operation of a chain that makes it, if it is one
  // Of f32: all NaNs among its elements are NaNs of bf16 too, since it was computed from such
  // values alone.
  bool has_bf16_nans = false;
  FusedAddress address;  // the address of an element; each use sets `scalar`
};

struct LoweredOp {
  FusedStep step;
  int operands[3] = {-1, -1, -1};
  int result = -1;  // index of a value; -1: the op is a store
  int to = -1;      // for a store: the result that it writes
  FusedKind kind = FusedKind::full;
  int stage = 0;
  // For a reduction that can reduce a chain's values directly: its kernel. The operations of the
  // chain, in order, and the reduction itself share one number `fold`; -1: not in such a group.
  ChainFoldFn folds = nullptr;
  int fold = -1, link = 0;
};

// Moves into each reduction's stage the operations whose only use is this reduction, as far as they
// form a chain. A difference, sum or widening of operands that other operations use too is computed
// twice, because to keep it for a whole row costs more. Call before the operations are ordered by
// stages.
void fold_chains(std::vector<LoweredOp>& ops, std::vector<LoweredValue>& values);

// Puts the operations of each folded chain directly before their reduction, in their order. Call
// after the operations are ordered by stages.
void join_folded_chains(std::vector<LoweredOp>& ops);

}  // namespace shmap::cpu
