// SubmitMutex: what orders the threads that enqueue tasks.
#pragma once
#include <atomic>
#include <mutex>

#include "core/base/thread_state.h"
#include "core/device/memory_space.h"

namespace shmap {

// The mutex that a thread holds while it enqueues tasks. A task may run on a thread that already
// holds the mutex (a task that runs at once, or one that a waiting thread runs), so lock() inside
// of a task throws Error instead of deadlocking.
class SubmitMutex {
 public:
  void lock() {
    detail::ThreadState& thread = detail::thread_state;
    if (thread.task != nullptr) [[unlikely]]
      throw_in_task();
    mutex_.lock();
    holder_ = &thread;
    thread.submits = true;
  }
  void unlock() noexcept {
    holder_->submits = false;
    mutex_.unlock();
    if (detail::deferred_deleters.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
      MemorySpace::run_deferred_deleters();
  }

 private:
  [[noreturn]] static void throw_in_task();
  std::mutex mutex_;
  detail::ThreadState* holder_ = nullptr;
};

}  // namespace shmap
