// Makes an allocation of the host fail, in a program that includes failing_new.h in one of its
// source files.
#pragma once
#include <atomic>

namespace shmap::test {

enum class Failing { once, for_good };

// The number of allocations that succeed before one fails; negative: none fails.
inline std::atomic<long> allocations_left{-1};
inline std::atomic<bool> fails_for_good{false};
inline std::atomic<bool> one_failed{false};

// Makes the n-th allocation in its lifetime fail, n from 1 on, or all from the n-th on.
class FailAt {
 public:
  explicit FailAt(long n, Failing failing = Failing::once) {
    one_failed = false;
    fails_for_good = failing == Failing::for_good;
    allocations_left = n - 1;
  }
  ~FailAt() {
    fails_for_good = false;
    allocations_left = -1;
  }
  FailAt(const FailAt&) = delete;
  FailAt& operator=(const FailAt&) = delete;
};

inline bool fails() {
  if (fails_for_good.load(std::memory_order_relaxed) && one_failed) return true;
  if (allocations_left.load(std::memory_order_relaxed) < 0 ||
      allocations_left.fetch_sub(1, std::memory_order_relaxed) != 0)
    return false;
  return one_failed = true;
}

}  // namespace shmap::test
