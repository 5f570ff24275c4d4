// Checks that threads which wait for a GPU make now and then: whether the wait will ever end.
#pragma once

namespace shmap::cuda {

// `check` throws where enqueued work will never be done, for example because a peer process is
// lost. Set once, at registration; called by any thread.
void set_wait_check(void (*check)());
void check_wait();

// `in_doubt` returns whether some work that has ended on a GPU may still turn out to be invalid;
// until that is known, the tasks after it count as pending. Set once, at registration. Called
// often, by any thread, possibly under a spin lock: must neither block nor throw.
void set_done_check(bool (*in_doubt)() noexcept);
bool in_doubt() noexcept;

}  // namespace shmap::cuda
