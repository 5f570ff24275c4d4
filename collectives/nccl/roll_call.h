// The roll call of a collective that NCCL carries to other processes. NCCL waits forever for a
// process that does not come, and writes whatever another process sends. So the processes also tell
// each other by MPI which collective they have reached. No GPU waits for the answers, but work that
// has ended on a GPU counts as pending until they have arrived, so that no value is read that
// resulted from different operations of different processes.
#pragma once
#include <cstdint>
#include <span>

#include "collectives/communicator.h"
#include "cuda/device/queue.h"

namespace shmap::nccl {

// Calls the roll for a call that is about to be enqueued or captured, which the caller does while
// it still holds the submit mutex; each launch of the captured graph calls the roll again. Does
// nothing if the call's cliques do not span processes. The arguments are those of CrossCall. A
// process that does something else, is late, stopped or gone is a failure of the job, as for
// collectives among CPUs, and aborts NCCL's work.
void call_roll(const GroupBlocks& blocks, CollectiveKind kind, std::uint64_t code,
               std::span<const int> extra = {});
// Notes that this thread has enqueued a part of the call for which it called the roll last: the
// task of that number in the queue.
void note_enqueued(cuda::Queue& queue, std::uint64_t number);

}  // namespace shmap::nccl
