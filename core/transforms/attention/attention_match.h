// One attention in a program.
#pragma once
#include <optional>
#include <vector>

#include "core/ops/attention.h"
#include "core/transforms/passes/program_index.h"

namespace shmap {

struct AttentionMatch {
  Eqn eqn;
  std::vector<int> members;  // the equations in whose place it stands: where the last of them is
};

// What ends in the dot_general that is equation `product`, as find_attention.h says.
std::optional<AttentionMatch> match_attention(const ProgramIndex& program, int product,
                                              AttentionCheck takes);

}  // namespace shmap
