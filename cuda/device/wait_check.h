// What those who wait for a GPU ask now and then: whether the wait is in vain.
#pragma once

namespace shmap::cuda {

// `check` throws where work that was enqueued will never be done, as when a peer is lost. Called at
// registration, once; it is called by any thread.
void set_wait_check(void (*check)());
void check_wait();

}  // namespace shmap::cuda
