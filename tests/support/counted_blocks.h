// Counts work instead of timing it: the basic blocks of the library's rooms that run
// (cmake/ShmapCounted.cmake lists the rooms). The counts are the same on every machine, whatever
// else runs there. Only for the programs in `counted_tests` (tests/CMakeLists.txt).
#pragma once
#include <cstdint>

namespace shmap::test {

// Blocks that all threads of this process have run so far.
std::int64_t counted_blocks();

}  // namespace shmap::test
