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

}  // namespace shmap
