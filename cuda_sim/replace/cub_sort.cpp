// Replaces cuda/kernels/sort/cub_sort.cu in the simulator: sorts on the host when the stream
// reaches the sort.
#include <cuda_runtime_api.h>
#include <cuda_sim.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/sort/radix_sort.h"

namespace shmap::cuda {
namespace {

// Takes two buffers as CUB does, whose passes alternate between them.
int result_of(const RadixSort& s) { return (s.bits + 7) / 8 % 2; }

template <class Key>
void sort_pairs(const RadixSort& s) {
  struct Pair {
    Key key, masked;
    std::uint32_t value;
  };
  const auto n = static_cast<std::size_t>(s.n);
  const Key mask = s.bits >= 8 * static_cast<int>(sizeof(Key))
                       ? static_cast<Key>(~Key{0})
                       : static_cast<Key>((Key{1} << s.bits) - 1);
  std::vector<Pair> pairs(n);
  const auto* const keys = static_cast<const Key*>(s.keys[0]);
  for (std::size_t i = 0; i < n; ++i)
    pairs[i] = {keys[i], static_cast<Key>(keys[i] & mask), s.values[0][i]};
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.masked < b.masked; });
  // Overwrites the buffers that do not hold the result.
  for (int i = 0; i < 2; ++i) {
    std::memset(s.keys[i], 0xab, n * sizeof(Key));
    std::memset(s.values[i], 0xab, n * sizeof(std::uint32_t));
  }
  auto* const sorted = static_cast<Key*>(s.keys[result_of(s)]);
  for (std::size_t i = 0; i < n; ++i) {
    sorted[i] = pairs[i].key;
    s.values[result_of(s)][i] = pairs[i].value;
  }
}

}  // namespace

std::size_t radix_sort_temporary(const RadixSort& s) {
  return static_cast<std::size_t>(s.n / 16 + 1);
}

int radix_sort(const RadixSort& s, void* temporary, std::size_t bytes, void* stream) {
  const cudaError_t status =
      shmap_sim::enqueue(static_cast<cudaStream_t>(stream), "radix sort", [=] {
        std::memset(temporary, 0xab, bytes);
        s.key_bytes == 8 ? sort_pairs<std::uint64_t>(s) : sort_pairs<std::uint32_t>(s);
      });
  if (status != cudaSuccess) throw_launch_error("radix sort", static_cast<int>(status));
  return result_of(s);
}

}  // namespace shmap::cuda
