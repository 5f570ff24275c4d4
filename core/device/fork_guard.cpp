#include "core/device/fork_guard.h"

#include <pthread.h>

#include "shmap/error.h"

namespace shmap {

namespace detail {
constinit std::atomic<bool> forked_after_use{false};
}

void watch_forks() {
  static const int registered = pthread_atfork(
      nullptr, nullptr, [] { detail::forked_after_use.store(true, std::memory_order_relaxed); });
  if (registered != 0) throw DeviceError("pthread_atfork failed: no memory for its handler");
}

void throw_forked() {
  throw DeviceError(
      "this process was forked after its parent had used devices: their workers and locks did not "
      "come along. Fork before the first array, or start the child with exec.");
}

}  // namespace shmap
