// Several trips of a loop's body as one program: where a trip is small, what a program costs to run
// at all is paid once for all of them, and their steps are fused with one another.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/ir/jaxpr.h"

namespace shmap {

// How many trips of the body of a scan of `length` trips become one program; 1: none. They have
// some equations together, so that programs stay small, and are small themselves: steps of kernels
// or views, without programs inside, that take `nanoseconds` a trip on one core.
std::int64_t trips_to_merge(const Jaxpr& body, std::int64_t length, double nanoseconds);

// (constants, carry, xs) -> (carry, ys) becomes (constants, carry, xs of the first trip, …, xs of
// the last) -> (carry, ys of the first trip, …, ys of the last). Null where a carry leaves the body
// as a literal, or in another type than it came in.
JaxprRef merge_trips(const Jaxpr& body, std::size_t consts, std::size_t carry, std::int64_t trips);

}  // namespace shmap
