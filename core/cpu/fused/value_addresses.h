// Assigns memory to the values of a fused step list: in an operand, in a result, or in scratch.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/cpu/fused/lowered_op.h"

namespace shmap::cpu {

// The address of a value of this kind in the row-major memory of an operand or a result. `size`:
// bytes of an element.
FusedAddress address_in_memory(const FusedStepList& list, int base, FusedKind kind,
                               std::int64_t size);

// Assigns an address to each value that an op makes: in the result where it is stored
// (`first_result` is the base of result 0), or in scratch, whose bytes are counted in
// list->scratch. `ops` must be in their final order, and the values must know their last uses.
void place_values(std::span<const LoweredOp> ops, int first_result,
                  std::vector<LoweredValue>* values, FusedStepList* list);

}  // namespace shmap::cpu
