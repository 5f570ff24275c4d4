#include "core/cpu/executor/waiting.h"

#include <fmt/format.h>

#include "core/base/warning.h"
#include "core/cpu/executor/executor.h"
#include "core/cpu/executor/running.h"
#include "shmap/error.h"

namespace shmap::cpu {

Deadline::Deadline(const Executor& executor) noexcept
    : executor_(executor), clock_(executor.options().warn_sec, executor.options().timeout_sec) {}

void Deadline::check(const Node* node) {
  switch (clock_.look()) {
    case WaitClock::Due::nothing:
      return;
    case WaitClock::Due::warning:
      return warn(text(node, clock_.seconds()) + " (SHMAP_COLLECTIVE_WARN_SEC)");
    case WaitClock::Due::failure:
      throw DeviceError(text(node, clock_.seconds()) +
                        ". Giving up (SHMAP_COLLECTIVE_TIMEOUT_SEC); the task goes on.");
  }
}

std::string running_tasks(const Executor& executor) {
  constexpr int kMost = 8;
  std::string text;
  int count = 0;
  for_each_running([&](const RunningTask& running) {
    if (running.executor != &executor || ++count > kMost) return;
    text += (count == 1 ? "; running: " : "; ") + describe(running);
  });
  if (count > kMost) text += "; and " + std::to_string(count - kMost) + " more";
  return text;
}

std::string Deadline::text(const Node* node, double sec) const {
  std::string what = "the tasks in flight";
  if (node != nullptr) {
    what = std::string("task '") + node->task.name + "' of local device " +
           std::to_string(node->stream->device_index()) +
           (node->stream->role() == StreamRole::comm ? ", communication" : ", compute") +
           " stream, which still waits for " +
           std::to_string(node->blockers.load(std::memory_order_relaxed)) + " others";
  }
  return "waiting for " + what + ", since " + fmt::format("{:.1f}", sec) + " s; " +
         std::to_string(executor_.in_flight()) + " tasks are in flight, " +
         std::to_string(executor_.ready_parts()) + " ready" + running_tasks(executor_);
}

}  // namespace shmap::cpu
