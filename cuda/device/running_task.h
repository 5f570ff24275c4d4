// What code that a task calls may ask about the task: the backend says it to the thread.
#pragma once
#include "cuda/driver/health.h"

namespace shmap::cuda {

// While the scope is alive, this thread runs a task of a backend with that health.
// in_graph_of_one_gpu: the thread captures a program with a separate graph for each GPU.
class RunningTask {
 public:
  RunningTask(Health& health, bool in_graph_of_one_gpu) noexcept;
  ~RunningTask();
  RunningTask(const RunningTask&) = delete;
  RunningTask& operator=(const RunningTask&) = delete;

 private:
  friend Ref<Health> health_of_task();
  friend bool captures_graph_of_one_gpu() noexcept;
  Health& health_;
  const bool in_graph_of_one_gpu_;
  const RunningTask* const outer_;
};

// Whether this thread runs a task and captures a program with a separate graph for each GPU.
bool captures_graph_of_one_gpu() noexcept;

// The health of the backend that runs the current task. Throws Error outside of tasks.
Ref<Health> health_of_task();

}  // namespace shmap::cuda
