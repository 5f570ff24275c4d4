#include "cuda/device/wait_check.h"

#include <atomic>

namespace shmap::cuda {

namespace {

constinit std::atomic<void (*)()> wait_check{nullptr};
constinit std::atomic<bool (*)() noexcept> done_check{nullptr};

}  // namespace

void set_wait_check(void (*check)()) { wait_check.store(check, std::memory_order_release); }

void check_wait() {
  if (const auto check = wait_check.load(std::memory_order_acquire)) check();
}

void set_done_check(bool (*in_doubt)() noexcept) {
  done_check.store(in_doubt, std::memory_order_release);
}

bool in_doubt() noexcept {
  const auto check = done_check.load(std::memory_order_acquire);
  return check != nullptr && check();
}

}  // namespace shmap::cuda
