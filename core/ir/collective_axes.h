// The mesh axes that a collective's parameters name.
#pragma once
#include <string>
#include <vector>

#include "core/ir/params.h"

namespace shmap {

// A collective's only parameter that is a list of names has its axes. Empty for other primitives.
std::vector<std::string> collective_axes(const Params& params);

}  // namespace shmap
