// After fork(), the child has locks and no worker threads: uses of the runtime in the child throw
// an error instead of hanging.
#pragma once
#include <atomic>

namespace shmap {

namespace detail {
extern std::atomic<bool> forked_after_use;
}

// Notes this process as the parent: children that it forks from now on count as forked. Idempotent.
void watch_forks();

// True in a child that was forked after the runtime started.
inline bool forked() noexcept { return detail::forked_after_use.load(std::memory_order_relaxed); }
[[noreturn]] void throw_forked();  // DeviceError

}  // namespace shmap
