// Opens the library that glibc needs when an exception passes through glibc's own frames.
#pragma once

namespace shmap {

// glibc opens libgcc_s when an exception first passes through one of its functions (pthread_once,
// which std::call_once uses), and aborts if there is too little memory to open it, which is likely
// while std::bad_alloc is thrown. This call opens libgcc_s in advance. Does not throw; repeated
// calls are cheap.
void open_unwinder() noexcept;

}  // namespace shmap
