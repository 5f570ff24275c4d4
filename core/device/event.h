// Event: the completion of one task of one stream.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

#include "core/base/intrusive.h"

namespace shmap {

// The record behind an Event; each backend derives its own.
class Completion : public RefCounted {
 public:
  enum State : std::uint32_t { pending = 0, done = 1, failed = 2 };

  virtual ~Completion() = default;
  State state() const noexcept {
    return static_cast<State>(word_.load(std::memory_order_acquire) & 3u);
  }
  // The state now; a backend whose completion has to be polled does so here. Any thread.
  virtual State query() noexcept { return state(); }
  // Blocks until done or failed; the caller may be put to work meanwhile. Throws (without changing
  // the state) where waiting is not allowed here or takes longer than the deadline.
  virtual void block() = 0;
  // Called when the last owner goes.
  virtual void dispose() noexcept { delete this; }
  // What the task threw; valid once failed, and the same object for every task that inherited it.
  std::exception_ptr error() const noexcept { return error_; }
  // False where a device that waits for it before it computes might do nothing meanwhile: of copies
  // between devices, say.
  virtual bool on_compute_stream() const noexcept { return true; }
  // Somebody saw the error: a synchronize() need not report it again.
  virtual void mark_reported() noexcept {}
  const void* owner() const noexcept { return owner_; }  // the executor that completes it

 protected:
  explicit Completion(const void* owner) noexcept : owner_(owner) {}
  static constexpr std::uint32_t kWaiter = 4;  // somebody sleeps on it
  std::atomic<std::uint32_t> word_{pending};
  std::exception_ptr error_;
  const void* owner_;
};

// A cheap handle. Default constructed it is done already, and costs nothing to copy.
class Event {
 public:
  Event() = default;
  explicit Event(Ref<Completion> record) noexcept : record_(std::move(record)) {}

  // True once the task finished or failed, and whatever it wrote can be seen. Any thread.
  bool done() const noexcept {
    return record_.get() == nullptr || record_->query() != Completion::pending;
  }
  // True where the task, or one that it waited for, threw.
  bool failed() const noexcept {
    return record_.get() != nullptr && record_->query() == Completion::failed;
  }
  // Blocks until done, executing ready tasks meanwhile, and rethrows the task's error, each time it
  // is called. Throws Error while this thread captures or runs a task, DeviceError where
  // SHMAP_COLLECTIVE_TIMEOUT_SEC passed. Any thread.
  void wait() const;
  // The task's error, or null.
  std::exception_ptr error() const noexcept { return failed() ? record_->error() : nullptr; }

  Completion* record() const noexcept { return record_.get(); }
  friend bool operator==(const Event&, const Event&) noexcept = default;

 private:
  Ref<Completion> record_;
};

}  // namespace shmap
