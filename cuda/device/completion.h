// TaskCompletion: the state behind a task's event: a queue, and the task's number in that queue.
#pragma once
#include <cstdint>

#include "core/device/event.h"
#include "core/device/failure_log.h"
#include "cuda/device/queue.h"

namespace shmap::cuda {

class TaskCompletion final : public Completion {
 public:
  // owner: the backend. failure: the task's failure, if it was known when the task was enqueued, or
  // null. The event of a failed task ends as failed, but not before the work that was enqueued for
  // it.
  static Event make(const void* owner, Ref<Queue> queue, std::uint64_t number,
                    Ref<Failure> failure);
  // An event that has already failed.
  static Event failed(const void* owner, Ref<Failure> failure);

  TaskCompletion() noexcept : Completion(nullptr) {}
  State query() noexcept override;
  State recent() noexcept override;
  void block() override;
  void dispose() noexcept override;  // returns the object to the pool
  void mark_reported() noexcept override;
  bool on_compute_stream() const noexcept override;

  Queue* queue() const noexcept { return queue_.get(); }  // null for an event of failed()
  std::uint64_t number() const noexcept { return number_; }
  Failure* failure() const noexcept { return failure_.get(); }

 private:
  friend class CompletionPool;
  State state_if(bool ended) noexcept;
  State conclude(const Failure* failure) noexcept;
  Ref<Queue> queue_;
  std::uint64_t number_ = 0;
  Ref<Failure> failure_;
  TaskCompletion* next_ = nullptr;
};

// The first failure that was known when an event of `owner` was made; null if there is none. A task
// that waits for these events fails with that failure. Further failures are marked as reported,
// because the first is reported.
Ref<Failure> inherited_failure(const void* owner, std::span<const Event> waits);

}  // namespace shmap::cuda
