#include "core/cpu/device/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/processes/shared_heap.h"

namespace shmap::cpu {
namespace {
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
// Smaller blocks are sent inside the message that announces them, and need no shared memory.
constexpr std::int64_t kSharedBytes = std::int64_t{8} << 10;
}  // namespace

CpuMemorySpace::~CpuMemorySpace() {
  reclaim();
  trim();
}

void* CpuMemorySpace::map(std::int64_t bytes) noexcept {
  const auto size = static_cast<std::size_t>(bytes);
  if (SharedHeap* heap = SharedHeap::of_process(); heap != nullptr && bytes >= kSharedBytes) {
    if (void* data = heap->allocate(bytes)) return data;
  }
  if (bytes < kHugePage) return std::aligned_alloc(64, size);
  constexpr auto kAlign = static_cast<std::size_t>(kHugePage);
  const std::size_t mapped = size + kAlign;  // enough to cut an aligned run out of it
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  const std::uintptr_t aligned = (begin + kAlign - 1) & ~(kAlign - 1);
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t kept = (size + page - 1) & ~(page - 1);
  if (aligned > begin) munmap(base, aligned - begin);
  const std::uintptr_t end = begin + mapped;
  if (end > aligned + kept) {
    munmap(reinterpret_cast<void*>(aligned + kept), end - aligned - kept);
  }
  void* data = reinterpret_cast<void*>(aligned);
  madvise(data, kept, MADV_HUGEPAGE);  // a hint; memory without huge pages works as well
  return data;
}

void CpuMemorySpace::unmap(void* data, std::int64_t bytes) noexcept {
  if (SharedHeap* heap = SharedHeap::of_process(); heap != nullptr && heap->holds(data))
    return heap->free(data, bytes);
  if (bytes < kHugePage) {
    std::free(data);
    return;
  }
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  munmap(data, (static_cast<std::size_t>(bytes) + page - 1) & ~(page - 1));
}

std::int64_t default_cache_limit(int spaces) noexcept {
  const std::int64_t physical = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) *
                                static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  return std::max(physical / 8 / std::max(spaces, 1), std::int64_t{16} << 20);
}

}  // namespace shmap::cpu
