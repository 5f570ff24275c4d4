// The communicator among the devices of one process, for any number of memory spaces: tables and
// plain copies.
//
// Results that are equal in a memory space are stored once there. Sums, maxima and gathers are
// computed once per clique, directly from the blocks of all ranks, and copied to the other memory
// spaces: by one task, whose parts each compute a share of the result and copy it to the other
// spaces while it is in the cache. (Processes divide sums in the same way,
// collectives/cross_sums.cpp.) With several GPUs, each GPU computes the result for the memory
// spaces on it. Permutations and broadcasts inside a memory space change entries of the table and
// move no bytes.
#pragma once
#include "collectives/communicator.h"

namespace shmap {

class InProcessCommunicator final : public Communicator {
 public:
  SHMAP_COLLECTIVE_VERBS(SHMAP_VERB_OVERRIDE)
};

// Copies a sender's block of the result's size to the memory space of the device at `position`, on
// that device's stream. The caller holds the submit mutex.
Block copy_to_space(const GroupBlocks& g, const Block& from, std::uint32_t sender,
                    std::uint32_t position);

}  // namespace shmap
