// Backends and memory for the tests of captured programs.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/cpu/device/backend.h"
#include "core/device/plan_memory.h"

namespace shmap::test {

constexpr std::int64_t kLarge = 10'000'000;  // a cost at which nothing runs at enqueue

inline std::unique_ptr<Backend> make_backend(const std::string& devices, cpu::Mode mode,
                                             std::uint64_t seed = 0) {
  cpu::ExecutorOptions options;
  options.mode = mode;
  options.seed = seed;
  options.workers = 2;
  return std::make_unique<cpu::CpuBackend>(DeviceSpec::parse("cpu:" + devices), 0, 0, options, -1);
}

inline std::vector<BufferRef> slabs_of(const MemoryLayout& layout) {
  std::vector<BufferRef> slabs;
  for (const auto& slab : layout.slabs) slabs.push_back(slab.space->allocate(slab.bytes));
  return slabs;
}
inline std::vector<BufferRef> outputs_of(const MemoryLayout& layout) {
  std::vector<BufferRef> outputs;
  for (std::int64_t k : layout.escaping()) {
    const auto& place = layout.places[static_cast<std::size_t>(k)];
    outputs.push_back(place.space->allocate(place.bytes));
  }
  return outputs;
}

}  // namespace shmap::test
