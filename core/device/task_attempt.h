// Attempts: how one thread may do all the work of a task with `later` (core/device/task.h).
//
// Passing the end of such a task from one thread to another costs more than a small exchange with
// another process, whose answer mostly comes within a microsecond. If a task with `later` has a
// `join` and no `takes`, an executor with nothing else pending may therefore call join, with the
// task itself as `before`, instead of run. If join returns true, all of the task's work is done. If
// it returns false, the executor calls run as usual, and run continues the work that join has
// begun. join may wait a microsecond or two, or 0.1 ms while it offers its core to other threads,
// and no longer, since the submit mutex is held. An exception of join fails the task.
#pragma once
#include "core/device/stream.h"

namespace shmap {

inline bool may_attempt(const Task& task) noexcept {
  return task.later && task.join != nullptr && task.takes == nullptr;
}

inline bool attempt(const Task& task, Stream& stream, std::uint64_t ticket) {
  return task.join(task.args, task, {0, 1, stream, nullptr, nullptr, ticket});
}

}  // namespace shmap
