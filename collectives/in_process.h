// The communicator among the devices of one process, for any number of memory spaces: tables and
// plain copies.
//
// Results that are equal in a memory space are stored once there. Sums, maxima and gathers are
// computed once per clique and memory space, directly from the blocks of all ranks; permutations
// and broadcasts inside a memory space change entries of the table and move no bytes.
#pragma once
#include "collectives/communicator.h"

namespace shmap {

class InProcessCommunicator final : public Communicator {
 public:
  SHMAP_COLLECTIVE_VERBS(SHMAP_VERB_OVERRIDE)
};

}  // namespace shmap
