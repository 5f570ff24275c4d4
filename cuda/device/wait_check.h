// What those who wait for a GPU ask now and then: whether the wait is in vain.
#pragma once

namespace shmap::cuda {

// `check` throws where work that was enqueued will never be done, as when a peer is lost. Called at
// registration, once; it is called by any thread.
void set_wait_check(void (*check)());
void check_wait();

// Whether something that has ended on a GPU is not known yet to be what was asked for: as long as
// that is so, what comes after it counts as pending. Called at registration, once; it is called
// by any thread, often, maybe under a spin lock, and neither waits nor throws.
void set_done_check(bool (*in_doubt)() noexcept);
bool in_doubt() noexcept;

}  // namespace shmap::cuda
