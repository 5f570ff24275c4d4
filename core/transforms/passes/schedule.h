// Scheduling: the order in which a program of blocks is put into the devices' streams. A stream
// runs its work in order, so what waits for a collective holds up what comes after it, and is
// better put later.
#pragma once
#include "core/runtime/rates.h"

namespace shmap {

// The same equations, collectives started as early as their operands are there, and what reads
// their results as late as there is other work to do. Collectives keep their order among each
// other, as effects do: it is the same in every process. The order depends on the program and its
// types alone, by the rates of the devices, never on a measured time.
JaxprRef schedule(const Jaxpr& jaxpr, const Rates& rates = {});

}  // namespace shmap
