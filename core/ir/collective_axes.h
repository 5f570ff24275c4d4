// The mesh axes that a collective's parameters name.
#pragma once
#include <string>
#include <vector>

#include "core/ir/params.h"

namespace shmap {

// Returns the mesh axes of a collective from its parameters: the axes are the only parameter of a
// collective that is a list of names. Empty where no parameter is one.
std::vector<std::string> collective_axes(const Params& params);

}  // namespace shmap
