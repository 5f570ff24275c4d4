// Masks that are comparisons of positions: which of them say that a column is at most so far beyond
// its row.
#pragma once
#include <cstdint>
#include <optional>

#include "core/transforms/passes/program_index.h"

namespace shmap {

// Of a value of bools, whose dims have those `places` among a larger one's (program_index.h): an
// offset, where it says of each element whether its column is at most row + offset, `row` and
// `column` being two of the places; if `inverted`, whether it is not.
std::optional<std::int64_t> causal_offset(const ProgramIndex& program, const Atom& mask,
                                          const IntList& places, int row, int column,
                                          bool inverted);

}  // namespace shmap
