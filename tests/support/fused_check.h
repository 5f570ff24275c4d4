// Fused programs against the results of their operations, to the last bit.
#pragma once
#include "tests/support/fused_cases.h"

namespace shmap::testing {

// Runs the program in one to five parts, in each kind of tiles, with results of their own and in
// the memory of each operand that they may overwrite, and as the library runs it. What differs from
// the results of its operations is a failure of the current test.
void check_fused_case(const FusedCase& c);

}  // namespace shmap::testing
