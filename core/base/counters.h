// The counters that include/shmap/counters.h reads. Each thread counts in a CounterBlock of its
// own, so that counting takes a load and a store instead of an atomic addition; a reader sums the
// blocks of all threads.
#pragma once
#include <atomic>
#include <cstdint>

#include "core/base/thread_state.h"
#include "shmap/counters.h"

namespace shmap {

enum class Counter : std::uint8_t {
  kernel_launches,
  copies,
  copied_bytes,
  collectives,
  collective_bytes,
  allocations,
  syncs,
};
inline constexpr int kCounters = 7;

namespace detail {

struct CounterBlock {
  std::atomic<std::int64_t> values[kCounters] = {};
  bool taken = false;            // in use by a live thread; guarded by the list's mutex
  CounterBlock* next = nullptr;  // blocks are never freed: later threads reuse them
};

CounterBlock* register_counter_block();  // assigns a block to this thread

inline CounterBlock& counter_block(const ThreadState& thread = thread_state) {
  return thread.counters != nullptr ? *thread.counters : *register_counter_block();
}

}  // namespace detail

// Adds n. Takes a few nanoseconds; any thread. `thread`: the state of the calling thread.
inline void count(Counter which, std::int64_t n = 1,
                  const detail::ThreadState& thread = detail::thread_state) {
  auto& value = detail::counter_block(thread).values[static_cast<int>(which)];
  value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

// The counts of an UncountedScope. add() counts them again, on the calling thread.
struct CounterDelta {
  std::int64_t values[kCounters] = {};
  void add() const {
    const detail::ThreadState& thread = detail::thread_state;
    for (int i = 0; i < kCounters; ++i)
      if (values[i] != 0) count(static_cast<Counter>(i), values[i], thread);
  }
};
// Takes back what this thread counts while the object lives: for work that a capture only records,
// and that is counted at each launch of the graph instead (CounterDelta::add).
class UncountedScope {
 public:
  UncountedScope() : block_(detail::counter_block()) {
    for (int i = 0; i < kCounters; ++i) before_.values[i] = load(i);
  }
  ~UncountedScope() { take(); }
  UncountedScope(const UncountedScope&) = delete;
  UncountedScope& operator=(const UncountedScope&) = delete;
  // Subtracts the counts of the scope so far, and returns them.
  CounterDelta take() {
    CounterDelta delta;
    for (int i = 0; i < kCounters; ++i) {
      delta.values[i] = load(i) - before_.values[i];
      block_.values[i].store(before_.values[i], std::memory_order_relaxed);
    }
    return delta;
  }

 private:
  std::int64_t load(int i) const { return block_.values[i].load(std::memory_order_relaxed); }
  detail::CounterBlock& block_;  // of the thread that made the object
  CounterDelta before_;
};

}  // namespace shmap
