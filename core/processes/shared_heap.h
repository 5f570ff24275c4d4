// SharedHeap: memory of this process that the others of its node can read where it lies.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace shmap {

// A file without a name (memfd), mapped once and for all, of which parts are handed out: it takes
// memory only where something was written, gives it back when a part is freed, and is gone with the
// processes that have it open. Thread-safe. It lives as long as the process.
class SharedHeap {
 public:
  // This process's, where it has made one; else null.
  static SharedHeap* of_process() noexcept { return the_heap.load(std::memory_order_acquire); }
  // Makes it, for blocks of fewer bytes than `below`, as one of so many processes that map each
  // other's. Null where the system has no room for it. Called once.
  static SharedHeap* make(std::int64_t below, int processes) noexcept;
  // Nobody is to take memory from it: before anybody has.
  static void disuse() noexcept { the_heap.store(nullptr, std::memory_order_release); }

  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  // All of such a file, at an address where it may have huge pages; null where that cannot be.
  static void* map(int file, std::int64_t bytes, int protection) noexcept;

  int file() const noexcept { return file_; }
  std::int64_t size() const noexcept { return size_; }

  // On its own pages; from 2 MiB on aligned to that. Null where there is no room, or where the
  // block is too large for this heap.
  void* allocate(std::int64_t bytes) noexcept;
  // What allocate gave, with the same size.
  void free(void* data, std::int64_t bytes) noexcept;
  bool holds(const void* data) const noexcept {
    const auto* p = static_cast<const std::byte*>(data);
    return p >= base_ && p < base_ + size_;
  }
  std::int64_t offset_of(const void* data) const noexcept {
    return static_cast<const std::byte*>(data) - base_;
  }

 private:
  SharedHeap(int file, std::byte* base, std::int64_t size, std::int64_t below);
  ~SharedHeap() = delete;
  static std::atomic<SharedHeap*> the_heap;

  const int file_;
  std::byte* const base_;
  const std::int64_t size_, below_;
  std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> free_;  // offset -> bytes; neighbours are one
};

}  // namespace shmap
