#include <cub/device/device_radix_sort.cuh>

#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/sort/radix_sort.h"

namespace shmap::cuda {
namespace {

template <class Key>
int run(const RadixSort& s, void* temporary, std::size_t& bytes, void* stream) {
  cub::DoubleBuffer<Key> keys(static_cast<Key*>(s.keys[0]), static_cast<Key*>(s.keys[1]));
  cub::DoubleBuffer<std::uint32_t> values(s.values[0], s.values[1]);
  const cudaError_t status = cub::DeviceRadixSort::SortPairs(
      temporary, bytes, keys, values, static_cast<std::uint32_t>(s.n), 0, s.bits,
      static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) throw_launch_error("radix sort", static_cast<int>(status));
  return keys.selector;
}

}  // namespace

std::size_t radix_sort_temporary(const RadixSort& s) {
  RadixSort sizes = s;
  for (int i = 0; i < 2; ++i) {
    sizes.keys[i] = nullptr;
    sizes.values[i] = nullptr;
  }
  std::size_t bytes = 0;
  s.key_bytes == 8 ? run<std::uint64_t>(sizes, nullptr, bytes, nullptr)
                   : run<std::uint32_t>(sizes, nullptr, bytes, nullptr);
  return bytes > 0 ? bytes : 1;
}

int radix_sort(const RadixSort& s, void* temporary, std::size_t bytes, void* stream) {
  return s.key_bytes == 8 ? run<std::uint64_t>(s, temporary, bytes, stream)
                          : run<std::uint32_t>(s, temporary, bytes, stream);
}

}  // namespace shmap::cuda
