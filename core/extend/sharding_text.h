// The sharding rule of a users' primitive as a text: "ab,bc->ac", a letter a dim.
#pragma once
#include <string>

#include "core/ir/primitive.h"

namespace shmap {

// Its factors for operands and results of these types. ValueError, which names the primitive, where
// it does not fit them.
FactorRule parse_sharding_text(const std::string& primitive, const std::string& text, Types in,
                               Types out);

}  // namespace shmap
