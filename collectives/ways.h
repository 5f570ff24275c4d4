// Collectives across processes in code that only some devices run. The devices that meet are of one
// way (core/runtime/collective_numbers.h), and each way of the active local devices has a call of
// its own. In all processes the ways are in the same order.
#pragma once
#include "collectives/communicator.h"

namespace shmap {

// Carries calls whose clique table has a CrossTable, under a divergence, by other communicators:
// one call for each active way. Inactive devices, whose results are discarded, get the results of
// the active devices that have the same values, because what does not vary is computed and read
// once for all, and zeros where there are none.
class EachWay final : public Communicator {
 public:
  SHMAP_COLLECTIVE_VERBS(SHMAP_VERB_OVERRIDE)
};

}  // namespace shmap
