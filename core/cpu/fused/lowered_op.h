// LoweredOp, LoweredValue: what a fused program is while it becomes a FusedStepList: operations in
// stages, of values that have no place yet.
#pragma once
#include <vector>

#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// Stages that are none: of operands and literals; of what is computed once a call.
inline constexpr int kStageNever = -2, kStagePrologue = -1;

struct LoweredValue {
  DType dtype = DType::f32;
  FusedKind kind = FusedKind::full;
  int stage = kStageNever;  // that makes it
  int made = -1;            // by which op, in their final order; -1: an operand or a literal
  int last_use = -1;        // op
  int last_stage = kStageNever;
  int result = -1;     // that it is written to as it is made
  bool tiled = false;  // of columns, repeated for each row of a tile
  bool part = false;   // an operand that is a part of an array
  FusedPlace place;    // of an element; `scalar` by use
};

struct LoweredOp {
  FusedStep step;
  int operands[3] = {-1, -1, -1};
  int result = -1;  // value; -1: a store
  int to = -1;      // of a store: the result that it writes
  FusedKind kind = FusedKind::full;
  int stage = 0;
  // Of a reduction that can take in a chain: its kernel. The chain's operations, in order, and the
  // reduction itself have one number `fold`; -1: it is in none.
  ChainFoldFn folds = nullptr;
  int fold = -1, link = 0;
};

// Gives each reduction the operations whose only use it is, as far as they are a chain: they move
// to its stage. A difference, sum or widening of operands which others use too is computed twice
// rather than kept for a whole row. Before the operations are ordered by stages.
void fold_chains(std::vector<LoweredOp>& ops, std::vector<LoweredValue>& values);

// Puts the operations of each folded chain before their reduction, in their order. After the
// operations are ordered by stages.
void join_folded_chains(std::vector<LoweredOp>& ops);

}  // namespace shmap::cpu
