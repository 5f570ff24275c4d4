// The bytes that the memory spaces hold, for tests that nothing leaks, and limits for them.
#pragma once
#include <cstdint>
#include <vector>

#include "core/device/runtime.h"

namespace shmap::test {

// bytes_in_use of every memory space, once all work is done.
inline std::vector<std::int64_t> bytes_in_use() {
  Backend& backend = runtime().backend();
  backend.synchronize();
  std::vector<std::int64_t> bytes;
  for (MemorySpace* space : backend.spaces()) bytes.push_back(space->bytes_in_use());
  return bytes;
}

// The limit of every memory space is what it holds and `more` bytes, until the scope ends.
class MemoryLimits {
 public:
  explicit MemoryLimits(std::int64_t more) {
    for (MemorySpace* space : runtime().backend().spaces()) {
      before_.push_back(space->limit());
      space->trim();
      space->set_limit(space->bytes_in_use() + more);
    }
  }
  ~MemoryLimits() {
    std::size_t i = 0;
    for (MemorySpace* space : runtime().backend().spaces()) space->set_limit(before_[i++]);
  }
  MemoryLimits(const MemoryLimits&) = delete;
  MemoryLimits& operator=(const MemoryLimits&) = delete;

 private:
  std::vector<std::int64_t> before_;
};

}  // namespace shmap::test
