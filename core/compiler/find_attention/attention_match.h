// Matches attention that ends in one product.
#pragma once
#include <optional>
#include <vector>

#include "core/compiler/passes/program_index.h"
#include "core/ops/attention.h"

namespace shmap {

struct AttentionMatch {
  Eqn eqn;
  std::vector<int> members;  // the equations that `eqn` replaces, at the place of the last one
};

// Matches the equations that end in the dot_general with number `product`, as described in
// find_attention.h.
std::optional<AttentionMatch> match_attention(const ProgramIndex& program, int product,
                                              AttentionCheck takes);

}  // namespace shmap
