// Event: the completion of one task of one stream.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

#include "core/base/intrusive.h"

namespace shmap {

// The state behind an Event; each backend derives a class.
class Completion : public RefCounted {
 public:
  enum State : std::uint32_t { pending = 0, done = 1, failed = 2 };

  virtual ~Completion() = default;
  State state() const noexcept {
    return static_cast<State>(word_.load(std::memory_order_acquire) & 3u);
  }
  // The current state; backends whose completions have to be polled override it. Any thread.
  virtual State query() noexcept { return state(); }
  // The state as of a query not long ago, for callers to whom "pending" costs little when the task
  // is in fact done. A caller that asks again and again hears of the end in time. Any thread.
  virtual State recent() noexcept { return query(); }
  // Blocks until done or failed; the thread may run other tasks meanwhile. Throws, without a change
  // of state, where waiting is not allowed or takes longer than the deadline.
  virtual void block() = 0;
  // Called when the last reference is gone.
  virtual void dispose() noexcept { delete this; }
  // The exception of the task; valid once the state is failed. Tasks that failed because this one
  // failed have the same object.
  std::exception_ptr error() const noexcept { return error_; }
  // Whether the task is on a compute stream. False for copies between devices and the like: a
  // device that waits for such a task before it computes may be idle meanwhile.
  virtual bool on_compute_stream() const noexcept { return true; }
  // Notes that the error has been thrown to a caller, so that synchronize() need not report it
  // again.
  virtual void mark_reported() noexcept {}
  // The executor that completes the task, or the capture that recorded the task.
  const void* owner() const noexcept { return owner_; }

 protected:
  explicit Completion(const void* owner) noexcept : owner_(owner) {}
  static constexpr std::uint32_t kWaiter = 4;  // a thread sleeps until the task is done
  std::atomic<std::uint32_t> word_{pending};
  std::exception_ptr error_;
  const void* owner_;
};

// A small handle to a Completion. A default-constructed Event has none: it is done, and costs
// nothing to copy.
class Event {
 public:
  Event() = default;
  explicit Event(Ref<Completion> record) noexcept : record_(std::move(record)) {}

  // True once the task has finished or failed, and what it wrote is visible. Any thread.
  bool done() const noexcept {
    return record_.get() == nullptr || record_->query() != Completion::pending;
  }
  // True if the task is known to have finished or failed. Unlike done(), this seldom asks the
  // device, which takes a GPU's driver about a microsecond, so it may be false for a while after
  // the end. For the bookkeeping of launches and of freed memory. Any thread.
  bool known_done() const noexcept {
    return record_.get() == nullptr || record_->recent() != Completion::pending;
  }
  // True where the task, or a task for which it waited, threw.
  bool failed() const noexcept {
    return record_.get() != nullptr && record_->query() == Completion::failed;
  }
  // Blocks until the task is done; meanwhile this thread may run other tasks that are ready.
  // Rethrows the error of a failed task, at each call. Throws Error while this thread captures or
  // runs a task, and DeviceError after SHMAP_COLLECTIVE_TIMEOUT_SEC. Any thread.
  void wait() const;
  // The task's error, or null.
  std::exception_ptr error() const noexcept { return failed() ? record_->error() : nullptr; }

  Completion* record() const noexcept { return record_.get(); }
  friend bool operator==(const Event&, const Event&) noexcept = default;

 private:
  Ref<Completion> record_;
};

}  // namespace shmap
