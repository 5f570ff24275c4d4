// Activations in programs, as compositions of operations: relu and gelu.
#pragma once
#include <vector>

#include "core/ops/product.h"
#include "core/transforms/passes/program_index.h"

namespace shmap {

// What is done with a value, where nothing else is.
struct FoundActivation {
  Activation activation = Activation::none;
  std::vector<int> eqns;  // the last of them makes the result
};
FoundActivation find_activation(const ProgramIndex& program, const Var* value);

}  // namespace shmap
