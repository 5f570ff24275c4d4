// CpuMemorySpace: host memory from the system.
#pragma once
#include <string>

#include "core/device/memory_space.h"

namespace shmap::cpu {

// Where other processes of the node read it (SharedHeap), blocks that are worth it lie there.
// Blocks of 2 MiB and more are aligned to that and ask for huge pages: first touch of 64 MiB then
// costs a seventh.
class CpuMemorySpace final : public MemorySpace {
 public:
  using MemorySpace::MemorySpace;
  ~CpuMemorySpace() override;

 protected:
  void* map(std::int64_t bytes) noexcept override;
  void unmap(void* data, std::int64_t bytes) noexcept override;
};

// What one space should keep of what is freed: an eighth of the machine's memory, shared among the
// spaces, and at least 16 MiB.
std::int64_t default_cache_limit(int spaces) noexcept;

}  // namespace shmap::cpu
