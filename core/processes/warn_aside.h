// warn_aside: warnings of code that other threads wait for.
#pragma once
#include <string>

namespace shmap {

// The same as warn(), on a thread of its own, for which the caller waits a moment only: stderr may
// be a pipe that nobody reads (a pager, a stopped terminal), and the caller holds a mutex that
// every exchange needs. Any thread; never throws.
void warn_aside(const std::string& text) noexcept;

// Waits until those warnings are written that warn_aside() has left behind, for a second at most.
// For ends of the process.
void wait_for_warnings() noexcept;

}  // namespace shmap
