// PinnedPool: host memory that GPUs can copy to and from directly.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace shmap::cuda {

// Blocks of page-locked memory in powers of two, which are kept when they are returned, because
// locking pages takes a millisecond for each megabyte. Any thread.
class PinnedPool {
 public:
  static PinnedPool& instance();  // never destroyed
  // At least `bytes`, 64-byte aligned; throws OutOfMemory. The calling thread's current GPU is one
  // that this process uses.
  void* take(std::int64_t bytes);
  void give(void* block) noexcept;  // calls no CUDA function, so that host functions may call it

 private:
  PinnedPool() = default;
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<void*>> free_;  // by size
  std::map<void*, std::int64_t> sizes_;              // of all blocks
};

// A block for the lifetime of the object.
class PinnedBlock {
 public:
  explicit PinnedBlock(std::int64_t bytes) : data_(PinnedPool::instance().take(bytes)) {}
  ~PinnedBlock() { PinnedPool::instance().give(data_); }
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
};

}  // namespace shmap::cuda
