#include "core/cpu/executor/waiting.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/warning.h"
#include "core/cpu/executor/executor.h"
#include "core/cpu/executor/running.h"
#include "core/processes/while_waiting.h"
#include "shmap/error.h"

namespace shmap::cpu {

Deadline::Deadline(const Executor& executor) noexcept
    : executor_(executor),
      clock_(executor.options().warn_sec, executor.options().timeout_sec),
      progress_(executor.progress()) {}

void Deadline::check(const Node* node) {
  clock_.advance();
  const std::int64_t progress = executor_.progress();
  if (std::exchange(progress_, progress) != progress || detail::others_are_awaited())
    moved_ = clock_.seconds();
  switch (clock_.due_after(std::max(clock_.seconds() - moved_, longest_running()))) {
    case WaitClock::Due::nothing:
      return;
    case WaitClock::Due::warning:
      return warn(text(node) + " (SHMAP_COLLECTIVE_WARN_SEC)");
    case WaitClock::Due::failure:
      throw DeviceError(text(node) +
                        ". Giving up (SHMAP_COLLECTIVE_TIMEOUT_SEC); the task goes on.");
  }
}

// The time that the wait has seen some task run.
double Deadline::longest_running() {
  std::vector<Seen> seen;
  double longest = 0;
  for_each_running([&](const RunningTask& running) {
    if (running.executor != &executor_) return;
    const auto known = std::ranges::find_if(
        running_, [&](const Seen& s) { return s.task == &running && s.serial == running.serial; });
    seen.push_back(
        {&running, running.serial, known != running_.end() ? known->since : clock_.seconds()});
    longest = std::max(longest, clock_.seconds() - seen.back().since);
  });
  running_ = std::move(seen);
  return longest;
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

std::string Deadline::text(const Node* node) const {
  std::string what = "the tasks in flight";
  if (node != nullptr) {
    what = std::string("task '") + node->task.name + "' of local device " +
           std::to_string(node->stream->device_index()) +
           (node->stream->role() == StreamRole::comm ? ", communication" : ", compute") +
           " stream, which still waits for " +
           std::to_string(node->blockers.load(std::memory_order_relaxed)) + " others";
  }
  return "waiting for " + what + ", since " + fmt::format("{:.1f}", clock_.seconds()) + " s; " +
         std::to_string(executor_.in_flight()) + " tasks are in flight, " +
         std::to_string(executor_.ready_parts()) + " ready" + running_tasks(executor_);
}

}  // namespace shmap::cpu
