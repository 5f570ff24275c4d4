#include "core/processes/shared_heap.h"
#include "core/base/round_up.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>

namespace shmap {

constinit std::atomic<SharedHeap*> SharedHeap::the_heap{nullptr};

namespace {

constexpr std::int64_t kPage = 4096;
// For the heaps of all processes of a node, out of the 128 TiB of addresses of a process.
constexpr std::int64_t kMostAddresses = std::int64_t{16} << 40;

}  // namespace

SharedHeap::SharedHeap(int file, std::byte* base, std::int64_t size, std::int64_t below)
    : file_(file), base_(base), size_(size), below_(below) {
  free_.give(0, size);
}

void* SharedHeap::map(int file, std::int64_t bytes, int protection) noexcept {
  const auto size = static_cast<std::size_t>(bytes);
  const auto reserved = static_cast<std::size_t>(bytes + kHugePage);
  void* const base =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  const auto aligned =
      static_cast<std::uintptr_t>(round_up(static_cast<std::int64_t>(begin), kHugePage));
  void* const at = reinterpret_cast<void*>(aligned);
  if (mmap(at, size, protection, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    munmap(base, reserved);
    return nullptr;
  }
  if (aligned > begin) munmap(base, aligned - begin);
  if (begin + reserved > aligned + size)
    munmap(reinterpret_cast<void*>(aligned + size), begin + reserved - aligned - size);
  madvise(at, size, MADV_HUGEPAGE);  // a hint; memory without huge pages works as well
  return at;
}

SharedHeap* SharedHeap::make(std::int64_t below, int processes) noexcept {
  // Reserves addresses, not memory: all physical memory, and room for fragmentation.
  const std::int64_t physical = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) *
                                static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  const std::int64_t size =
      round_up(std::min(2 * std::max(physical, kHugePage), kMostAddresses / std::max(processes, 1)),
               kHugePage);
  // Writing beyond RLIMIT_FSIZE would end the process.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < static_cast<rlim_t>(size))
    return nullptr;
  const int file = memfd_create("shmap", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  void* base = nullptr;
  if (ftruncate(file, size) == 0) base = map(file, size, PROT_READ | PROT_WRITE);
  if (base == nullptr) {
    close(file);
    return nullptr;
  }
  try {
    auto* heap = new SharedHeap(file, static_cast<std::byte*>(base), size, below);
    the_heap.store(heap, std::memory_order_release);
    return heap;
  } catch (const std::bad_alloc&) {
    munmap(base, static_cast<std::size_t>(size));
    close(file);
    return nullptr;
  }
}

void* SharedHeap::allocate(std::int64_t bytes) noexcept {
  if (bytes >= below_) return nullptr;
  const std::int64_t size = round_up(std::max<std::int64_t>(bytes, 1), kPage);
  const std::int64_t align = bytes >= kHugePage ? kHugePage : kPage;
  try {
    std::lock_guard lock(mutex_);
    const std::int64_t at = free_.take(size, align);
    return at == FreeRanges::kNone ? nullptr : base_ + at;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void SharedHeap::free(void* data, std::int64_t bytes) noexcept {
  const std::int64_t begin = offset_of(data);
  const std::int64_t size = round_up(std::max<std::int64_t>(bytes, 1), kPage);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, size);
  try {
    std::lock_guard lock(mutex_);
    free_.give(begin, size);
  } catch (const std::bad_alloc&) {  // the addresses are lost, the memory is not
  }
}

}  // namespace shmap
