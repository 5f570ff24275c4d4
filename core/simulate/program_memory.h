// The peak memory of a program of blocks on one device, by the lifetimes of its values.
#pragma once
#include <cstdint>

#include "core/ir/jaxpr.h"

namespace shmap {

class PreparedPrograms;

// Bytes of the arguments, which live to the end, and of the program's values, each of which lives
// from its equation to its last use; results live to the end. A view shares its operand's bytes,
// and an elementwise result may take those of an operand at its last use. Scratch memory of kernels
// is not included.
std::int64_t peak_bytes(const Jaxpr& program, PreparedPrograms& programs);

}  // namespace shmap
