// The room that a limited address space (ulimit -v) has left. Libraries for products do not bear
// failed mappings: OpenBLAS tries again without end, oneDNN writes its code to null.
#pragma once
#include <cstddef>

namespace shmap::cpu {

// True if RLIMIT_AS or RLIMIT_DATA is set.
bool address_space_is_limited();
// True if `pieces` mappings of `bytes` bytes succeed now. Other threads may take the room later.
bool address_space_has_room(int pieces, std::size_t bytes);

}  // namespace shmap::cpu
