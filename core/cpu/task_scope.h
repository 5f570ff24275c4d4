// TaskScope: marks this thread as running a task.
#pragma once
#include <utility>

#include "core/device/backend.h"

namespace shmap::cpu {

class TaskScope {
 public:
  explicit TaskScope(const char* name) noexcept
      : outer_(std::exchange(detail::thread_state.task, name)) {}
  ~TaskScope() { detail::thread_state.task = outer_; }
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;

 private:
  const char* outer_;
};

}  // namespace shmap::cpu
