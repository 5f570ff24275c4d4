// SharedHeap: memory of this process that the other processes of its node can read in place.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/base/free_ranges.h"

namespace shmap {

// An unnamed file (memfd), mapped once, of which parts are allocated. It uses memory only for pages
// that were written, returns the memory when a part is freed, and vanishes with the processes that
// have it open. Thread-safe. It lives as long as the process.
class SharedHeap {
 public:
  // The heap of this process, if one was made; else null.
  static SharedHeap* of_process() noexcept { return the_heap.load(std::memory_order_acquire); }
  // Makes the heap, for blocks of fewer than `below` bytes, as one of `processes` heaps that all
  // processes map. Null where the system has no room for it. Called once.
  static SharedHeap* make(std::int64_t below, int processes) noexcept;
  // Blocks up to this size lie in the heap, whichever size a memory space rounds them up to.
  static constexpr std::int64_t kMostBytes = std::int64_t{15} << 17;
  // From this size on blocks are aligned so that they can have huge pages, which are of this size.
  static constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
  // Forbids allocations from the heap; call before the first allocation.
  static void disuse() noexcept { the_heap.store(nullptr, std::memory_order_release); }

  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  // Maps a whole heap file at an address where it can have huge pages; null where that fails.
  static void* map(int file, std::int64_t bytes, int protection) noexcept;

  int file() const noexcept { return file_; }
  std::int64_t size() const noexcept { return size_; }

  // A block on pages of its own, aligned to kHugePage from that size on. Null where there is no
  // room, or the block is too large for this heap.
  void* allocate(std::int64_t bytes) noexcept;
  // Frees a block of allocate(), which was allocated with the same size.
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
  FreeRanges free_;
};

}  // namespace shmap
