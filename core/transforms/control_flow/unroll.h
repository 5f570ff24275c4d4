// Unrolling: replaces loops of few trips by the equations of their trips.
#pragma once
#include <optional>

#include "core/device/backend.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// The largest number of equations of an unrolled loop: trips times the equations of the body, in
// which unrolled inner loops count with all their trips. See docs/decisions.md.
inline constexpr std::int64_t kUnrolledEquations = 512;

// The program with its scans of few trips unrolled (fori_loops of static bounds are scans).
// Programs inside of other equations are left as they are. The program itself where there is
// nothing to unroll. Values stay the same; variance is inferred again, and may be over fewer axes.
// A plan then captures the steps of all trips together, schedules them across trips, and launches
// them as one graph instead of one graph per trip. `tasks_of`: the kind of devices that can run a
// small loop as a task (flow_task.h); loops that are better as tasks stay (unroll.cpp).
JaxprRef unroll(const Jaxpr& jaxpr, std::optional<DeviceKind> tasks_of = std::nullopt);

}  // namespace shmap
