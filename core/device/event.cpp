#include "core/device/event.h"

#include <string>

#include "core/device/host_log.h"
#include "core/device/submit_mutex.h"
#include "shmap/error.h"

namespace shmap {

void Event::wait() const {
  // An error even where the event is already done, because whether it is done depends on timing.
  const detail::ThreadState& thread = detail::thread_state;
  if (thread.capture != nullptr) {
    throw Error("waiting for a value while this thread captures a graph: read it before or after");
  }
  if (thread.task != nullptr) {
    throw Error("waiting for a value inside the task '" + std::string(thread.task) +
                "': a kernel or callback cannot wait for others; hand it what it needs");
  }
  if (record_.get() == nullptr) return;
  if (record_->query() == Completion::pending) {
    const HostSpanScope logged("wait");
    record_->block();
  }
  if (record_->query() == Completion::failed) {
    record_->mark_reported();
    std::rethrow_exception(record_->error());
  }
}

void SubmitMutex::throw_in_task() {
  throw Error(
      "an array operation, or a wait for an array, inside the task '" +
      std::string(detail::thread_state.task) +
      "': a kernel or callback cannot start others or wait for them; hand it what it needs");
}

}  // namespace shmap
