#include "cuda/device/running_task.h"

#include "shmap/error.h"

namespace shmap::cuda {
namespace {
thread_local constinit const RunningTask* innermost_task = nullptr;
}  // namespace

RunningTask::RunningTask(Health& health, bool in_graph_of_one_gpu) noexcept
    : health_(health), in_graph_of_one_gpu_(in_graph_of_one_gpu), outer_(innermost_task) {
  innermost_task = this;
}
RunningTask::~RunningTask() { innermost_task = outer_; }

Ref<Health> health_of_task() {
  if (innermost_task == nullptr) throw Error("health_of_task: this thread runs no task");
  return Ref<Health>(&innermost_task->health_);
}

bool captures_graph_of_one_gpu() noexcept {
  return innermost_task != nullptr && innermost_task->in_graph_of_one_gpu_;
}

}  // namespace shmap::cuda
