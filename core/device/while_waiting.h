// What a thread that waits for a device does meanwhile, beside tasks: it drives what comes from
// other processes, which would otherwise wait for a turn of their thread.
#pragma once
#include <atomic>

namespace shmap::detail {

// Null: nothing. Called often, by any thread that holds no lock; short, and never blocks.
extern std::atomic<void (*)() noexcept> while_waiting;

inline void look_around() noexcept {
  if (auto* look = while_waiting.load(std::memory_order_relaxed)) look();
}

}  // namespace shmap::detail
