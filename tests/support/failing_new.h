// Tests of a host without memory: replaces operator new of the whole program by one that fails on
// demand. Included by one source file of a program.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "tests/support/fail_at.h"

namespace shmap::test {

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
