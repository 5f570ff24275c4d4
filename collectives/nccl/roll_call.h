// The roll call of a collective that NCCL carries to other processes. NCCL waits forever for a
// process that does not come, and writes whatever another process sends. So the processes also tell
// each other by MPI which collective they have reached. No GPU waits for the answers, but work that
// has ended on a GPU counts as pending until they have arrived, so that no value is read that
// resulted from different operations of different processes.
#pragma once
#include <cstdint>
#include <span>

#include "collectives/communicator.h"
#include "collectives/exchange_task.h"
#include "cuda/device/queue.h"

namespace shmap::nccl {

void call_roll(CrossCall& call);

// Calls the roll for a call, which begins the open roll call or, in a capture, leaves each launch
// of the graph to call the roll. Then calls enqueue(), which enqueues or captures the call. Without
// the roll call if the call's cliques do not span processes. The caller holds the submit mutex. The
// arguments are those of CrossCall. A process that does something else, is late, stopped or gone is
// a failure of the job, as for collectives among CPUs, and aborts NCCL's work. So is an exception
// of enqueue(), since the others have been told by then that this process takes part.
template <class Enqueue>
void after_roll_call(const GroupBlocks& blocks, CollectiveKind kind, std::uint64_t code,
                     std::span<const int> extra, const Enqueue& enqueue) {
  if (blocks.cliques.cross == nullptr) return enqueue();
  CrossCall call(blocks, kind, code, extra);
  call.perform([&] {
    call_roll(call);
    enqueue();
  });
}
// Notes that this thread has enqueued a part of the call for which it called the roll last: the
// task of that number in the queue.
void note_enqueued(cuda::Queue& queue, std::uint64_t number);

}  // namespace shmap::nccl
