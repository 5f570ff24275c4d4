// After fork(), the child process has locks that may be held by threads which it does not have, and
// it has no worker threads: uses of the runtime in the child throw DeviceError instead of hanging.
#pragma once
#include <atomic>

namespace shmap {

namespace detail {
extern std::atomic<bool> forked_after_use;
}

// From now on, processes that this process forks count as forked. Idempotent. Throws DeviceError
// where there is no memory.
void watch_forks();

// True in a child that was forked after the runtime started.
inline bool forked() noexcept { return detail::forked_after_use.load(std::memory_order_relaxed); }
[[noreturn]] void throw_forked();  // DeviceError

}  // namespace shmap
