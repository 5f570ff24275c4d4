// The sharding rule of a user's primitive as text: "ab,bc->ac", with one letter per dim.
#pragma once
#include <string>

#include "core/ir/primitive.h"

namespace shmap {

// The factors of the rule for operands and results of these types. ValueError, which names the
// primitive, where the text does not fit the types.
FactorRule parse_sharding_text(const std::string& primitive, const std::string& text, Types in,
                               Types out);

}  // namespace shmap
