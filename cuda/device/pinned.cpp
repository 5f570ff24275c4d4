#include "cuda/device/pinned.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <string>

#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "shmap/error.h"

namespace shmap::cuda {

PinnedPool& PinnedPool::instance() {
  static auto* const pool = new PinnedPool;
  return *pool;
}

void* PinnedPool::take(std::int64_t bytes) {
  constexpr std::uint64_t kLeast = 4096;
  const auto size =
      static_cast<std::int64_t>(std::bit_ceil(std::max(static_cast<std::uint64_t>(bytes), kLeast)));
  {
    std::lock_guard lock(mutex_);
    std::vector<void*>& free = free_[size];
    if (!free.empty()) {
      void* block = free.back();
      free.pop_back();
      return block;
    }
  }
  const UncapturedCalls uncaptured;
  void* block = nullptr;
  // Portable: page-locked for every GPU.
  const cudaError_t code =
      cudaHostAlloc(&block, static_cast<std::size_t>(size), cudaHostAllocPortable);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemory("the host has no " + std::to_string(size) +
                      " bytes of page-locked memory for copies from and to a GPU (cudaHostAlloc)");
  }
  check(code, "cudaHostAlloc");
  std::lock_guard lock(mutex_);
  sizes_.emplace(block, size);
  free_[size].reserve(sizes_.size());  // so that returning a block cannot fail
  return block;
}

void PinnedPool::give(void* block) noexcept {
  std::lock_guard lock(mutex_);
  free_[sizes_.at(block)].push_back(block);
}

}  // namespace shmap::cuda
