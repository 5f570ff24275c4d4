// The memory that a program of one device's blocks holds at its peak, by the lifetimes of its
// values.
#pragma once
#include <cstdint>

#include "core/ir/jaxpr.h"

namespace shmap {

class PreparedPrograms;

// Bytes of the arguments, which stay to the end, and of what the program makes, each from its
// equation to its last use; results stay to the end too. A view has its operand's bytes, and an
// elementwise result may take those of an operand that dies. What kernels need for themselves does
// not count.
std::int64_t peak_bytes(const Jaxpr& program, PreparedPrograms& programs);

}  // namespace shmap
