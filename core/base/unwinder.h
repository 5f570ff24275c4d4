// The library of which glibc asks for help when an exception passes through its own frames.
#pragma once

namespace shmap {

// glibc opens libgcc_s when an exception first passes through one of its functions (pthread_once,
// on which std::call_once stands), and aborts where memory is too short to open it, as it is while
// std::bad_alloc is thrown. This opens it beforehand. Does not throw; repeated calls are cheap.
void open_unwinder() noexcept;

}  // namespace shmap
