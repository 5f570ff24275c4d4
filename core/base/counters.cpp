#include "core/base/counters.h"

#include <mutex>

namespace shmap {
namespace detail {

namespace {

// Never destroyed: threads count until the process ends.
struct BlockList {
  std::mutex mutex;
  CounterBlock* head = nullptr;
  std::int64_t base[kCounters] = {};  // the sums at the last reset
};
BlockList& block_list() {
  static BlockList* list = new BlockList;
  return *list;
}

// Hands the block of a finished thread to the next new thread; its counts stay in the sums.
struct BlockReturn {
  CounterBlock* block = nullptr;
  ~BlockReturn() {
    if (block == nullptr) return;
    std::lock_guard lock(block_list().mutex);
    block->taken = false;
    thread_state.counters = nullptr;
  }
};

void sum_blocks(const BlockList& list, std::int64_t (&sums)[kCounters]) {
  for (auto& sum : sums) sum = 0;
  for (const CounterBlock* b = list.head; b != nullptr; b = b->next) {
    for (int i = 0; i < kCounters; ++i) sums[i] += b->values[i].load(std::memory_order_relaxed);
  }
}

}  // namespace

CounterBlock* register_counter_block() {
  thread_local BlockReturn give_back;
  BlockList& list = block_list();
  std::lock_guard lock(list.mutex);
  CounterBlock* block = list.head;
  while (block != nullptr && block->taken) block = block->next;
  if (block == nullptr) {
    block = new CounterBlock;
    block->next = list.head;
    list.head = block;
  }
  block->taken = true;
  give_back.block = block;
  thread_state.counters = block;
  return block;
}

}  // namespace detail

Counters counters() {
  detail::BlockList& list = detail::block_list();
  std::lock_guard lock(list.mutex);
  std::int64_t n[kCounters];
  detail::sum_blocks(list, n);
  for (int i = 0; i < kCounters; ++i) n[i] -= list.base[i];
  return {n[0], n[1], n[2], n[3], n[4], n[5], n[6]};
}

void reset_counters() {
  detail::BlockList& list = detail::block_list();
  std::lock_guard lock(list.mutex);
  detail::sum_blocks(list, list.base);
}

}  // namespace shmap
