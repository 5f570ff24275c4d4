// Steps that run nothing, because their result is a part of operand 0: the result's table gets the
// operand's blocks, at other offsets.
#pragma once
#include <span>

#include "core/runtime/step.h"

namespace shmap {

// For a primitive with a rule `view`. Returns false, without effect, if the result is not a
// contiguous part of the operand.
bool run_as_view(const Step& step, Types out_types, std::span<StoredNode* const> out);

// For a primitive with a rule `dynamic_view`, by which the part's position depends on scalar
// operands. Returns false, without effect, if one of these is not computed yet. Only for
// operands that could not be overwritten in place anyway, because another table, such as that of a
// body's argument, names their memory; and not for small parts, since a view keeps the whole
// operand alive.
bool run_as_dynamic_view(const Step& step, Types out_types, std::span<StoredNode* const> out);

}  // namespace shmap
