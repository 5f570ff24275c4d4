// The counters behind include/shmap/counters.h. Each thread has a block of its own, so that a count
// is a load and a store; reading sums the blocks.
#pragma once
#include <atomic>
#include <cstdint>

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
  bool taken = false;            // by a live thread; guarded by the list's mutex
  CounterBlock* next = nullptr;  // blocks are never freed: a finished thread's is reused
};

extern constinit thread_local CounterBlock* counter_block
    __attribute__((tls_model("initial-exec")));
CounterBlock* register_counter_block();  // gives this thread its block

}  // namespace detail

// Adds n. About a nanosecond, any thread.
inline void count(Counter which, std::int64_t n = 1) {
  detail::CounterBlock* block = detail::counter_block;
  if (block == nullptr) [[unlikely]]
    block = detail::register_counter_block();
  auto& value = block->values[static_cast<int>(which)];
  value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

// What this thread counted in a scope, taken back: for work that is written down now, and done, and
// counted, each time that it is launched.
struct CounterDelta {
  std::int64_t values[kCounters] = {};
  void add() const {
    for (int i = 0; i < kCounters; ++i)
      if (values[i] != 0) count(static_cast<Counter>(i), values[i]);
  }
};
class UncountedScope {
 public:
  UncountedScope() {
    count(Counter::syncs, 0);  // this thread has its block from here on
    for (int i = 0; i < kCounters; ++i) before_.values[i] = load(i);
  }
  ~UncountedScope() { take(); }
  UncountedScope(const UncountedScope&) = delete;
  UncountedScope& operator=(const UncountedScope&) = delete;
  // What was counted so far.
  CounterDelta take() {
    CounterDelta delta;
    for (int i = 0; i < kCounters; ++i) {
      delta.values[i] = load(i) - before_.values[i];
      detail::counter_block->values[i].store(before_.values[i], std::memory_order_relaxed);
    }
    return delta;
  }

 private:
  static std::int64_t load(int i) {
    return detail::counter_block->values[i].load(std::memory_order_relaxed);
  }
  CounterDelta before_;
};

}  // namespace shmap
