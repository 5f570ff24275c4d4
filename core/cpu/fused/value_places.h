// Where the values of a fused step list are in memory: in an operand, in a result, or in scratch.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/cpu/fused/lowered_op.h"

namespace shmap::cpu {

// The place of a value of that kind, whose elements have `size` bytes, in the row-major memory of
// an operand or a result.
FusedPlace place_in_memory(const FusedStepList& list, int base, FusedKind kind, std::int64_t size);

// Gives each value that an op makes its place: that of the result to which it is written (the
// results' bases count from `first_result`), or a place in scratch, whose bytes list->scratch
// counts. `ops` are in their final order, and the values know their last uses.
void place_values(std::span<const LoweredOp> ops, int first_result,
                  std::vector<LoweredValue>* values, FusedStepList* list);

}  // namespace shmap::cpu
