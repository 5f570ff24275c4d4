// Recognises masks that are comparisons of positions: a column is at most `offset` beyond its row.
#pragma once
#include <cstdint>
#include <optional>

#include "core/transforms/passes/program_index.h"

namespace shmap {

// The offset for which each element of `mask` says whether its column is at most row + offset, or,
// if `inverted`, whether it is not; nothing where `mask` is no such mask. `places`: the dims of
// `mask` among those of a larger value (program_index.h), of which `row` and `column` are two.
std::optional<std::int64_t> causal_offset(const ProgramIndex& program, const Atom& mask,
                                          const IntList& places, int row, int column,
                                          bool inverted);

}  // namespace shmap
