// TaskCompletion: what is behind the event of a task: a queue, and the task's number in it.
#pragma once
#include <cstdint>

#include "core/device/event.h"
#include "core/device/failure_log.h"
#include "cuda/device/queue.h"

namespace shmap::cuda {

class TaskCompletion final : public Completion {
 public:
  // owner: the backend. failure: of the task, known when it was enqueued, or null. It ends as
  // failed, but not before what was enqueued for it.
  static Event make(const void* owner, Ref<Queue> queue, std::uint64_t number,
                    Ref<Failure> failure);
  // One that ended already.
  static Event failed(const void* owner, Ref<Failure> failure);

  TaskCompletion() noexcept : Completion(nullptr) {}
  State query() noexcept override;
  void block() override;
  void dispose() noexcept override;  // back to the pool
  void mark_reported() noexcept override;
  bool on_compute_stream() const noexcept override;

  Queue* queue() const noexcept { return queue_.get(); }  // null where it has ended
  std::uint64_t number() const noexcept { return number_; }
  Failure* failure() const noexcept { return failure_.get(); }

 private:
  friend class CompletionPool;
  State conclude(const Failure* failure) noexcept;
  Ref<Queue> queue_;
  std::uint64_t number_ = 0;
  Ref<Failure> failure_;
  TaskCompletion* next_ = nullptr;
};

// Of events of that owner: the first failure, which stands for all (the others count as reported);
// null where there is none. A task that waits for them fails with it.
Ref<Failure> inherited_failure(const void* owner, std::span<const Event> waits);

}  // namespace shmap::cuda
