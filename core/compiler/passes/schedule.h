// Scheduling: the order in which the equations of a program of blocks enter the devices' streams. A
// stream runs its tasks in order, so that a task that waits for a collective delays all later tasks
// of its stream; the pass places such equations later.
#pragma once
#include "core/runtime/rates.h"

namespace shmap {

// The time that the schedule assumes for an equation on one device.
double scheduled_ns(const Eqn& e, const Rates& rates);

// The same equations, with each collective as early as its operands are ready, and equations that
// read its results as late as there is other work. Collectives keep their order, and so do effects;
// the order must be the same in every process. Therefore the schedule depends only on the program,
// its types and the devices' rates, never on a measured time.
JaxprRef schedule(const Jaxpr& jaxpr, const Rates& rates = {});

}  // namespace shmap
