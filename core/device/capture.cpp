#include "core/device/capture.h"

#include <string>

#include "core/device/fork_guard.h"
#include "shmap/error.h"

namespace shmap {

void CapturedEvent::block() {
  throw Error(
      "waiting for a task that is being captured: it runs when the graph is launched; wait for the "
      "event of the launch");
}

namespace detail {

void add_captured_waits(const void* capture, const Task& task, std::span<const Event> waits,
                        std::span<const Event> after, std::vector<std::int32_t>& before) {
  for (const Event& e : waits)
    if (e.failed()) std::rethrow_exception(e.error());
  for (const std::span<const Event> events : {waits, after}) {
    for (const Event& e : events) {
      if (e.done()) continue;
      if (e.record()->owner() != capture) {
        throw Error("capturing '" + std::string(task.name) +
                    "', which waits for work that was enqueued before the capture and is not done: "
                    "synchronize before begin_capture");
      }
      before.push_back(static_cast<const CapturedEvent&>(*e.record()).index());
    }
  }
}

void check_begins_capture() {
  const ThreadState& thread = thread_state;
  if (thread.capture != nullptr) throw Error("begin_capture: this thread captures already");
  if (thread.task != nullptr) {
    throw Error("begin_capture inside the task '" + std::string(thread.task) + "'");
  }
  if (forked()) throw_forked();
}

}  // namespace detail
}  // namespace shmap
