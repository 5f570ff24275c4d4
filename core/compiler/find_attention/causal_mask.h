// Recognises masks that are comparisons of positions: a column is at most `offset` beyond its row.
#pragma once
#include <cstdint>
#include <optional>

#include "core/compiler/passes/program_index.h"

namespace shmap {

// Returns the offset for which each element of `mask` is true where its column is at most row +
// offset, or, if `inverted`, is false there; nothing if `mask` is no such mask. `places` maps the
// dims of `mask` to dims of a larger value (program_index.h), two of which are `row` and `column`.
std::optional<std::int64_t> causal_offset(const ProgramIndex& program, const Atom& mask,
                                          const IntList& places, int row, int column,
                                          bool inverted);

}  // namespace shmap
