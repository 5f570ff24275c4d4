// TaskScope: marks this thread as running a task.
#pragma once
#include <utility>

#include "core/device/backend.h"

namespace shmap::cpu {

class TaskScope {
 public:
  explicit TaskScope(const char* name) noexcept
      : thread_(detail::thread_state), outer_(std::exchange(thread_.task, name)) {}
  ~TaskScope() { thread_.task = outer_; }
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;

 private:
  detail::ThreadState& thread_;
  const char* const outer_;
};

}  // namespace shmap::cpu
