// What a program would take as one task of one device: whether a loop is worth being such a task.
#pragma once
#include <limits>

#include "core/device/backend.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// Where no task can run a program: it has collectives that move data, effects, or steps without a
// kernel on devices of that kind.
inline constexpr double kNoTask = std::numeric_limits<double>::infinity();

// The estimated nanoseconds of the program's steps, one after another on one core; kNoTask where no
// task can run them. Loops whose trips nobody knows count as one trip.
double task_nanoseconds(const Jaxpr& jaxpr, DeviceKind kind);

}  // namespace shmap
