#include "cuda/device/event_pool.h"

#include <mutex>
#include <new>

#include "core/device/fork_guard.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"

namespace shmap::cuda {

EventPool::~EventPool() {
  if (forked()) return;
  for (cudaEvent_t event : free_) note(cudaEventDestroy(event));
}

cudaEvent_t EventPool::take() {
  {
    std::lock_guard lock(lock_);
    if (!free_.empty()) {
      cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
    ++made_;
    free_.reserve(static_cast<std::size_t>(made_));  // so that returning an event cannot fail
  }
  const GpuScope gpu(gpu_);
  const UncapturedCalls uncaptured;
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

void EventPool::give(cudaEvent_t event) noexcept {
  std::lock_guard lock(lock_);
  free_.push_back(event);
}

}  // namespace shmap::cuda
