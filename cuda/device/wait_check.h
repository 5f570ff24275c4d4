// Checks that threads which wait for a GPU make now and then: whether the wait will ever end.
#pragma once

namespace shmap::cuda {

// `check` throws where enqueued work will never be done, for example because a peer process is
// lost. Set once, at registration; called by any thread.
void set_wait_check(void (*check)());
void check_wait();

}  // namespace shmap::cuda
