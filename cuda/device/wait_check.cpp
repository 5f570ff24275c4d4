#include "cuda/device/wait_check.h"

#include <atomic>

namespace shmap::cuda {

namespace {

constinit std::atomic<Watched*> first_watched{nullptr};

}  // namespace

void watch(Watched& watched) noexcept {
  watched.next_ = first_watched.load(std::memory_order_relaxed);
  while (!first_watched.compare_exchange_weak(watched.next_, &watched, std::memory_order_release,
                                              std::memory_order_relaxed)) {
  }
}

void check_wait() {
  for (Watched* w = first_watched.load(std::memory_order_acquire); w != nullptr; w = w->next_)
    w->check_watched();
}

}  // namespace shmap::cuda
