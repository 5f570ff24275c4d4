// The roll call of a collective that NCCL carries to other processes. NCCL waits for ever for one
// that does not come, and writes whatever another sends; so, beside it, the processes tell each
// other by MPI which collective they have come to. No device waits for the answers; but what has
// ended on a GPU counts as pending until they are there, so that no value is read that another
// operation of another process has made.
#pragma once
#include <cstdint>
#include <span>

#include "collectives/communicator.h"
#include "cuda/device/queue.h"

namespace shmap::nccl {

// Of a call that is about to be enqueued or captured, at each of whose launches the roll is called
// anew. Nothing where its cliques don't leave the process. Arguments as CrossCall's. What it finds
// (a process that does something else, is late, stopped or gone) is a failure of the job, as of
// collectives among CPUs, and cuts off what NCCL does.
void call_roll(const GroupBlocks& blocks, CollectiveKind kind, std::uint64_t dtype_and_op,
               const char* dtype, std::span<const int> extra = {});
// This thread has enqueued a part of the call whose roll it called last: the queue's task of that
// number.
void note_enqueued(cuda::Queue& queue, std::uint64_t number);
// Whether some part has ended whose roll call has not.
bool roll_in_doubt() noexcept;

}  // namespace shmap::nccl
