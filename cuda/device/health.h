// Health: whether the GPUs of a backend still work. Some errors (a kernel's illegal access, say)
// cost a process its GPU for good: from then on each call of the backend throws at once.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <string>

#include "core/base/intrusive.h"
#include "core/device/failure_log.h"

namespace shmap::cuda {

// Outlives its backend, since events do. Any thread.
class Health : public RefCounted {
 public:
  // `unfinished(context)` names the tasks that are not known to be done: for the error's text.
  using Unfinished = std::string (*)(const void* context);
  Health(Unfinished unfinished, const void* context);
  ~Health();
  void detach() noexcept;  // the context goes

  bool poisoned() const noexcept { return poisoned_.load(std::memory_order_acquire); }
  // The one DeviceError of a poisoned one, shared by all that failed by it.
  Failure* failure() const noexcept { return failure_.get(); }
  void mark_reported() const noexcept { failure_->reported.store(true, std::memory_order_relaxed); }
  // The errors of its tasks.
  FailureLog& failures() noexcept { return failures_; }
  // Throws where poisoned; `what` is what was about to be done.
  void check(const char* what) const;
  // The first call poisons. `where`: what the host did when it saw the error.
  void poison(cudaError_t code, const char* where) noexcept;

  // Poisons every backend of this process: a call that belongs to none in particular saw it.
  static void lost(cudaError_t code, const char* where) noexcept;
  // The same for an error of another kind: what is under way will never be what was asked for.
  static void lost(const std::exception_ptr& error) noexcept;

 private:
  std::atomic<bool> poisoned_{false};
  mutable std::mutex mutex_;
  Unfinished unfinished_;
  const void* context_;
  FailureLog failures_{""};
  Ref<Failure> failure_;  // made beforehand; its error is set before poisoned_ is
};

}  // namespace shmap::cuda
