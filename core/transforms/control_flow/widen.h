// Widening: programs of control flow traced again for operands that vary over more mesh axes.
#pragma once
#include <span>

#include "core/ir/jaxpr.h"
#include "shmap/shaped_array.h"

namespace shmap {

// The program for arguments that vary over these axes too, with results of these types. Casts move
// from the program to its arguments where possible.
JaxprRef widen(const Jaxpr& jaxpr, const AxisSet& axes, std::span<const ShapedArray> results);

}  // namespace shmap
