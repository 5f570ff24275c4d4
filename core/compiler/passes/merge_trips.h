// Several trips of a loop's body as one program. Where trips are short, the cost of launching a
// program is then paid once for several trips, and their steps are fused with one another.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/ir/jaxpr.h"

namespace shmap {

// How many trips of a scan of `length` trips become one program; 1: trips are not merged. Trips are
// merged where they are short (`nanoseconds`: for one trip on one core) and have few equations,
// without programs inside.
std::int64_t trips_to_merge(const Jaxpr& body, std::int64_t length, double nanoseconds);

// (constants, carry, xs) -> (carry, ys) becomes (constants, carry, xs of the first trip, …, xs of
// the last) -> (carry, ys of the first trip, …, ys of the last). Null where a carry is a literal at
// the end of a trip, or has another type there than at the start.
JaxprRef merge_trips(const Jaxpr& body, std::size_t consts, std::size_t carry, std::int64_t trips);

}  // namespace shmap
