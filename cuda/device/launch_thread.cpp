#include "cuda/device/launch_thread.h"

#include <utility>

#include "core/base/signals_blocked.h"
#include "core/base/spin_lock.h"
#include "core/device/fork_guard.h"

namespace shmap::cuda {
namespace {

// Launches follow each other within microseconds; to wake a sleeping thread takes longer.
constexpr int kSpins = 2000;
// With fewer cores than this, other threads need the core on which this thread would spin.
constexpr unsigned kCoresToSpinOn = 16;

int spins() {
  static const int count = std::thread::hardware_concurrency() >= kCoresToSpinOn ? kSpins : 0;
  return count;
}

void wait_while(const std::atomic<std::uint32_t>& state, std::uint32_t value) noexcept {
  for (int i = spins(); i > 0; --i) {
    if (state.load(std::memory_order_acquire) != value) return;
    cpu_relax();
  }
  while (state.load(std::memory_order_acquire) == value) {
    state.wait(value, std::memory_order_acquire);
  }
}

}  // namespace

LaunchThread::LaunchThread(int gpu) : gpu_(gpu) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { loop(); });
}

LaunchThread::~LaunchThread() {
  if (forked()) {
    (void)new std::thread(std::move(thread_));
    return;
  }
  stop();
}

bool LaunchThread::start(Work work, void* args) noexcept {
  if (state_.load(std::memory_order_acquire) != idle) return false;
  work_ = work;
  args_ = args;
  std::uint32_t expected = idle;
  if (!state_.compare_exchange_strong(expected, given, std::memory_order_acq_rel)) return false;
  state_.notify_all();
  return true;
}

cudaError_t LaunchThread::wait() noexcept {
  wait_while(state_, given);
  const cudaError_t result = result_;
  std::uint32_t expected = done;  // unless the thread was asked to stop
  state_.compare_exchange_strong(expected, idle, std::memory_order_acq_rel);
  state_.notify_all();
  return result;
}

void LaunchThread::stop() noexcept {
  for (std::uint32_t now = state_.load(std::memory_order_acquire); now != stopping;) {
    if (now == given) {
      wait_while(state_, now);
      now = state_.load(std::memory_order_acquire);
    } else if (state_.compare_exchange_weak(now, stopping, std::memory_order_acq_rel)) {
      break;
    }
  }
  state_.notify_all();
  if (!joined_.exchange(true)) thread_.join();
}

void LaunchThread::loop() {
  const cudaError_t chosen = cudaSetDevice(gpu_);
  for (std::uint32_t now = idle;;) {
    wait_while(state_, now);
    now = state_.load(std::memory_order_acquire);
    if (now == stopping) return;
    if (now != given) continue;
    result_ = chosen == cudaSuccess ? work_(args_) : chosen;
    state_.store(now = done, std::memory_order_release);
    state_.notify_all();
  }
}

}  // namespace shmap::cuda
