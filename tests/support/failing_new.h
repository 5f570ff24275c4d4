// Tests of a host without memory: replaces operator new of the whole program by one that fails on
// demand. Included by one source file of a program.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

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

inline void* allocate(std::size_t bytes, std::size_t alignment) {
  if (fails()) throw std::bad_alloc();
  const std::size_t rounded =
      (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* p = alignment > alignof(std::max_align_t) ? std::aligned_alloc(alignment, rounded)
                                                  : std::malloc(rounded);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace shmap::test

void* operator new(std::size_t bytes) { return shmap::test::allocate(bytes, 1); }
void* operator new[](std::size_t bytes) { return shmap::test::allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) {
  return shmap::test::allocate(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a) {
  return shmap::test::allocate(bytes, static_cast<std::size_t>(a));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return shmap::test::fails() ? nullptr : std::malloc(std::max<std::size_t>(bytes, 1));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return shmap::test::fails() ? nullptr : std::malloc(std::max<std::size_t>(bytes, 1));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
