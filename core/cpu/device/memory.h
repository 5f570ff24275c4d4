// CpuMemorySpace: host memory from the system.
#pragma once
#include <string>

#include "core/device/memory_space.h"

namespace shmap::cpu {

// Where other processes of the node read this space (SharedHeap), blocks of 8 KiB and more lie in
// shared memory. Other blocks of 2 MiB and more are aligned to 2 MiB and ask for huge pages, which
// cut the cost of the first touch of 64 MiB to a seventh.
class CpuMemorySpace final : public MemorySpace {
 public:
  using MemorySpace::MemorySpace;
  ~CpuMemorySpace() override;

 protected:
  void* map(std::int64_t bytes) noexcept override;
  void unmap(void* data, std::int64_t bytes) noexcept override;
};

// Bytes of freed memory that one space keeps for later allocations: its share, among `spaces`
// spaces, of an eighth of the machine's memory, and at least 16 MiB.
std::int64_t default_cache_limit(int spaces) noexcept;

}  // namespace shmap::cpu
