// The start of the library, at its first use.
#pragma once

namespace shmap {

class Trace;

namespace detail {

// Registers all primitives, kernels and passes, and makes the base trace, in which operations run
// at once. Returns that trace, which is never destroyed. Any thread; later calls do nothing more.
Trace* start_library();

}  // namespace detail
}  // namespace shmap
