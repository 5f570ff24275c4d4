#include "cuda/device/wait_check.h"

#include <atomic>

namespace shmap::cuda {

namespace {

constinit std::atomic<void (*)()> wait_check{nullptr};

}  // namespace

void set_wait_check(void (*check)()) { wait_check.store(check, std::memory_order_release); }

void check_wait() {
  if (const auto check = wait_check.load(std::memory_order_acquire)) check();
}

}  // namespace shmap::cuda
