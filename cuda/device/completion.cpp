#include "cuda/device/completion.h"

#include <mutex>
#include <thread>
#include <utility>

#include "core/base/spin_lock.h"
#include "core/processes/while_waiting.h"
#include "cuda/device/doubt.h"
#include "cuda/device/wait_check.h"

namespace shmap::cuda {

// One pool in the process, never destroyed: events may outlive every backend.
class CompletionPool {
 public:
  TaskCompletion* take(const void* owner) {
    TaskCompletion* completion = nullptr;
    {
      std::lock_guard lock(lock_);
      if ((completion = free_) != nullptr) free_ = completion->next_;
    }
    if (completion == nullptr) completion = new TaskCompletion;
    completion->owner_ = owner;
    completion->word_.store(Completion::pending, std::memory_order_relaxed);
    return completion;
  }
  void give(TaskCompletion* completion) noexcept {
    completion->queue_.reset();
    completion->failure_.reset();
    completion->error_ = nullptr;
    std::lock_guard lock(lock_);
    completion->next_ = free_;
    free_ = completion;
  }

 private:
  SpinLock lock_;
  TaskCompletion* free_ = nullptr;
};

namespace {

// Set while the error is being written; the state still reads as pending.
constexpr std::uint32_t kWriting = 8;

CompletionPool& pool() {
  static auto* const completions = new CompletionPool;
  return *completions;
}

}  // namespace

Event TaskCompletion::make(const void* owner, Ref<Queue> queue, std::uint64_t number,
                           Ref<Failure> failure) {
  TaskCompletion* completion = pool().take(owner);
  completion->queue_ = std::move(queue);
  completion->number_ = number;
  completion->failure_ = std::move(failure);
  return Event(Ref<Completion>(completion));
}

Event TaskCompletion::failed(const void* owner, Ref<Failure> failure) {
  TaskCompletion* completion = pool().take(owner);
  completion->failure_ = std::move(failure);
  completion->conclude(completion->failure_.get());
  return Event(Ref<Completion>(completion));
}

Completion::State TaskCompletion::conclude(const Failure* failure) noexcept {
  std::uint32_t expected = pending;
  if (failure == nullptr) {
    word_.compare_exchange_strong(expected, Completion::done, std::memory_order_acq_rel);
  } else if (word_.compare_exchange_strong(expected, kWriting, std::memory_order_acq_rel)) {
    error_ = failure->error;
    word_.store(Completion::failed, std::memory_order_release);
  } else {
    while (word_.load(std::memory_order_acquire) == kWriting) cpu_relax();
  }
  return state();
}

Completion::State TaskCompletion::query() noexcept {
  if (const State now = state(); now != pending) return now;
  return state_if(queue_->done(number_));
}

Completion::State TaskCompletion::recent() noexcept {
  if (const State now = state(); now != pending) return now;
  return state_if(queue_->known_done(number_));
}

Completion::State TaskCompletion::state_if(bool ended) noexcept {
  // Poison is checked last: it makes work that was cut off count as ended and no longer in doubt.
  ended = ended && !in_doubt();
  if (queue_->health().poisoned()) return conclude(queue_->health().failure());
  return ended ? conclude(failure_.get()) : pending;
}

void TaskCompletion::block() {
  if (query() != pending) return;
  queue_->wait_here(number_);
  for (int turns = 1; query() == pending; ++turns) {
    detail::look_around();
    std::this_thread::yield();
    if (turns % 64 == 0) check_wait();
  }
}

void TaskCompletion::dispose() noexcept { pool().give(this); }

void TaskCompletion::mark_reported() noexcept {
  if (failure_) failure_->reported.store(true, std::memory_order_relaxed);
  if (queue_ && queue_->health().poisoned()) queue_->health().mark_reported();
}

bool TaskCompletion::on_compute_stream() const noexcept {
  return !queue_ || queue_->options().role == StreamRole::compute;
}

Ref<Failure> inherited_failure(const void* owner, std::span<const Event> waits) {
  Ref<Failure> first;
  for (const Event& e : waits) {
    if (e.record() == nullptr || e.record()->owner() != owner) continue;
    Failure* failure = static_cast<TaskCompletion*>(e.record())->failure();
    if (failure == nullptr) continue;
    if (!first) {
      first = Ref<Failure>(failure);
    } else if (failure != first.get()) {
      failure->reported.store(true, std::memory_order_relaxed);
    }
  }
  return first;
}

}  // namespace shmap::cuda
