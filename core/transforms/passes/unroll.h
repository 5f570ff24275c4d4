// Unrolling: loops of few trips become the equations of their trips.
#pragma once
#include <optional>

#include "core/device/backend.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// A loop is unrolled where its equations, times the trips, are at most so many, those of loops
// inside that are unrolled themselves counted as often as they run. See docs/decisions.md.
inline constexpr std::int64_t kUnrolledEquations = 512;

// The program with its scans (fori_loops of static bounds are such) of few trips unrolled, those of
// programs inside left as they are: itself where it has none. Values stay the same; variance is
// inferred anew, and may become less. The steps of a plan are then captured together, scheduled
// across trips, and launched as one graph, instead of a graph a trip. `tasks_of`: devices that run
// small loops by themselves (flow_task.h): loops stay whose trips are many and short, but too long
// to be fused with one another, unless a trip reads a counter of trips.
JaxprRef unroll(const Jaxpr& jaxpr, std::optional<DeviceKind> tasks_of = std::nullopt);

}  // namespace shmap
