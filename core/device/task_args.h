// TaskArgs: owns a task's args on behalf of a function that was given the task.
#pragma once
#include "core/device/task.h"

namespace shmap {

// Drops the args of a task, unless release() has passed them on.
class TaskArgs {
 public:
  explicit TaskArgs(const Task& task) noexcept : task_(&task) {}
  ~TaskArgs() {
    if (task_ != nullptr && task_->drop != nullptr) task_->drop(task_->args);
  }
  TaskArgs(const TaskArgs&) = delete;
  TaskArgs& operator=(const TaskArgs&) = delete;
  void release() noexcept { task_ = nullptr; }

 private:
  const Task* task_;
};

}  // namespace shmap
