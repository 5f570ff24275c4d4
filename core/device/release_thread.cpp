#include "core/device/release_thread.h"

#include <cstddef>
#include <exception>
#include <new>
#include <utility>

#include "core/base/signals_blocked.h"
#include "core/device/fork_guard.h"
#include "core/device/memory_space.h"

namespace shmap {

ReleaseThread& ReleaseThread::get() {
  // Allocates nothing: memory may be what is short.
  alignas(ReleaseThread) static std::byte room[sizeof(ReleaseThread)];
  static auto& thread = []() -> ReleaseThread& {
    auto& made = *new (room) ReleaseThread;
    detail::call_before_stop(made);
    return made;
  }();
  return thread;
}

void ReleaseThread::wake() noexcept {
  if (forked()) return;
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  if (!thread_.joinable()) {
    try {
      const SignalsBlocked blocked;
      thread_ = std::thread([this] { work(); });
    } catch (const std::exception&) {  // no thread, or no memory for it
      return;
    }
  }
  wanted_ = true;
  changed_.notify_one();
}

void ReleaseThread::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return wanted_ || stopped_; });
    if (!std::exchange(wanted_, false)) return;
    lock.unlock();
    MemorySpace::run_deferred_deleters();
    lock.lock();
  }
}

void ReleaseThread::before_stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_one();
  }
  if (forked()) return;
  if (thread_.joinable()) thread_.join();
  MemorySpace::run_deferred_deleters();  // where the thread could not be started
}

}  // namespace shmap
