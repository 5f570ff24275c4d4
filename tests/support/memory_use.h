// What the memory spaces hold, for tests that nothing leaks.
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

}  // namespace shmap::test
