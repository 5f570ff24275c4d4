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
  // `unfinished(context)` names the tasks that are not known to be done, for the error's text.
  using Unfinished = std::string (*)(const void* context);
  Health(Unfinished unfinished, const void* context);
  ~Health();
  void detach() noexcept;  // the context is about to be destroyed

  bool poisoned() const noexcept { return poisoned_.load(std::memory_order_acquire); }
  // The one DeviceError of a poisoned backend, shared by all tasks that fail because of it.
  Failure* failure() const noexcept { return failure_.get(); }
  void mark_reported() const noexcept { failure_->reported.store(true, std::memory_order_relaxed); }
  // The errors of the backend's tasks.
  FailureLog& failures() noexcept { return failures_; }
  // Throws where the backend is poisoned; `what` names the operation that was about to start.
  void check(const char* what) const;
  // The first call poisons the backend. `where`: what the host did when it saw the error.
  void poison(cudaError_t code, const char* where) noexcept;

  // Poisons every backend of this process, for an error of a call that belongs to no particular
  // backend.
  static void lost(cudaError_t code, const char* where) noexcept;
  // The same for an error that is not CUDA's: pending work will not give the requested results.
  static void lost(const std::exception_ptr& error) noexcept;

 private:
  std::atomic<bool> poisoned_{false};
  mutable std::mutex mutex_;
  Unfinished unfinished_;
  const void* context_;
  FailureLog failures_{""};
  Ref<Failure> failure_;  // allocated in advance; its error is set before poisoned_
};

}  // namespace shmap::cuda
