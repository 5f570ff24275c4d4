// Estimates the time of a program as one task of one device, to decide whether a loop should be a
// task.
#pragma once
#include <limits>

#include "core/device/backend.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// The estimate for a program that cannot be a task: it has collectives that move data, effects, or
// primitives without a kernel on devices of that kind.
inline constexpr double kNoTask = std::numeric_limits<double>::infinity();

// The estimated nanoseconds of the program's steps, one after another on one core; kNoTask where it
// cannot be a task. Loops of an unknown number of trips count as one trip.
double task_nanoseconds(const Jaxpr& jaxpr, DeviceKind kind);

}  // namespace shmap
