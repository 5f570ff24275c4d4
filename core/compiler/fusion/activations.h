// Activations in programs, as compositions of operations: relu and gelu.
#pragma once
#include <vector>

#include "core/compiler/passes/program_index.h"
#include "core/ops/product.h"

namespace shmap {

// The activation that is applied to a value, where the value has no other use.
struct FoundActivation {
  Activation activation = Activation::none;
  std::vector<int> eqns;  // the last of them makes the result
};
FoundActivation find_activation(const ProgramIndex& program, const Var* value);

}  // namespace shmap
