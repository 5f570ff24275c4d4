// What remains of the runtime in a child process after fork(): an error, instead of a hang on locks
// and workers that only the parent has.
#pragma once
#include <atomic>

namespace shmap {

namespace detail {
extern std::atomic<bool> forked_after_use;
}

// Notes the process; after this a fork() child counts as forked. Idempotent.
void watch_forks();

// True in a child that was forked after the runtime started.
inline bool forked() noexcept { return detail::forked_after_use.load(std::memory_order_relaxed); }
[[noreturn]] void throw_forked();  // DeviceError

}  // namespace shmap
