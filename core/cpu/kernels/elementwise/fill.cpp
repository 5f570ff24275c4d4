#include "core/cpu/kernels/elementwise/fill.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/vector/non_temporal.h"
#include "core/cpu/kernels/vector/store_around.h"

namespace shmap::cpu {
namespace {

inline constexpr std::int64_t kBlockBytes = 4096;

// Writes `bytes` bytes of copies of a T; used for the first bytes, before whole blocks are copied.
template <class T>
void fill_start(std::byte* out, const void* value, std::int64_t bytes) {
  T element;
  std::memcpy(&element, value, sizeof(T));
  for (std::int64_t i = 0; i < bytes; i += static_cast<std::int64_t>(sizeof(T)))
    std::memcpy(out + i, &element, sizeof(T));
}

template <class T>
void count(T* out, std::int64_t n, std::uint64_t start, std::uint64_t step) {
  T value = static_cast<T>(start);
  const T by = static_cast<T>(step);
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = value;
    value = static_cast<T>(value + by);
  }
}

// Produces contents of `source` dtype a block at a time and casts them to `dtype`.
template <class Produce>
void in_blocks(DType source, DType dtype, void* out, std::int64_t n, Produce produce) {
  const CastFn cast = cast_kernel(source, dtype);
  const std::int64_t size = itemsize(dtype), block = kBlockBytes / 8;
  const bool non_temporal = n * size >= store_around_bytes();
  alignas(64) std::byte from[kBlockBytes], to[kBlockBytes];
  for (std::int64_t i = 0; i < n; i += block) {
    const std::int64_t m = std::min(block, n - i);
    std::byte* at = static_cast<std::byte*>(out) + i * size;
    produce(from, i, m);
    cast(from, non_temporal ? to : at, m);
    if (non_temporal) store_non_temporal(at, to, m * size);
  }
  if (non_temporal) non_temporal_fence();
}

}  // namespace

void fill(void* out, const void* value, int itemsize, std::int64_t n) {
  if (n <= 0) return;
  std::byte* o = static_cast<std::byte*>(out);
  const std::size_t size = static_cast<std::size_t>(itemsize);
  const std::int64_t bytes = n * itemsize;
  const std::byte* v = static_cast<const std::byte*>(value);
  const bool uniform = std::all_of(v, v + size, [&](std::byte b) { return b == *v; });
  if (uniform && bytes < store_around_bytes()) {
    std::memset(o, static_cast<int>(*v), static_cast<std::size_t>(bytes));
    return;
  }
  // Writes a few elements one by one, then doubles what is written up to a block that stays in the
  // first-level cache, then copies that block. The block has whole elements.
  const std::int64_t start = std::min(bytes, std::max<std::int64_t>(256 / itemsize, 1) * itemsize);
  switch (itemsize) {
    case 1:
      fill_start<std::uint8_t>(o, v, start);
      break;
    case 2:
      fill_start<std::uint16_t>(o, v, start);
      break;
    case 4:
      fill_start<std::uint32_t>(o, v, start);
      break;
    case 8:
      fill_start<std::uint64_t>(o, v, start);
      break;
    default:
      for (std::int64_t i = 0; i < start; i += itemsize) std::memcpy(o + i, v, size);
  }
  const std::int64_t block =
      std::min(bytes, std::max<std::int64_t>(kBlockBytes / itemsize, 1) * itemsize);
  std::int64_t done = start;
  for (; done < block; done *= 2)
    std::memcpy(o + done, o, static_cast<std::size_t>(std::min(done, block - done)));
  const bool non_temporal = bytes >= store_around_bytes();
  for (std::int64_t at = block; at < bytes; at += block) {
    const std::int64_t m = std::min(block, bytes - at);
    if (non_temporal)
      store_non_temporal(o + at, o, m);
    else
      std::memcpy(o + at, o, static_cast<std::size_t>(m));
  }
  if (non_temporal) non_temporal_fence();
}

void iota(DType dtype, void* out, std::int64_t n, std::int64_t first, std::int64_t start,
          std::int64_t step) {
  const auto value_at = [=](std::int64_t i) {  // arithmetic that wraps
    return static_cast<std::uint64_t>(start) +
           (static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(i)) *
               static_cast<std::uint64_t>(step);
  };
  if (is_floating(dtype)) {
    // Integers are exact in f64 up to 2^53; beyond that only results of dtype f64 could differ.
    in_blocks(DType::f64, dtype, out, n, [&](std::byte* block, std::int64_t i, std::int64_t m) {
      double* values = reinterpret_cast<double*>(block);
      for (std::int64_t k = 0; k < m; ++k)
        values[k] = static_cast<double>(static_cast<std::int64_t>(value_at(i + k)));
    });
    return;
  }
  in_blocks(dtype, dtype, out, n, [&](std::byte* block, std::int64_t i, std::int64_t m) {
    const std::uint64_t from = value_at(i), by = static_cast<std::uint64_t>(step);
    switch (itemsize(dtype)) {
      case 1:
        return count(reinterpret_cast<std::uint8_t*>(block), m, from, by);
      case 2:
        return count(reinterpret_cast<std::uint16_t*>(block), m, from, by);
      case 4:
        return count(reinterpret_cast<std::uint32_t*>(block), m, from, by);
      default:
        return count(reinterpret_cast<std::uint64_t*>(block), m, from, by);
    }
  });
}

void linear(DType dtype, void* out, std::int64_t n, std::int64_t first, double start, double step) {
  in_blocks(DType::f64, dtype, out, n, [&](std::byte* block, std::int64_t i, std::int64_t m) {
    double* values = reinterpret_cast<double*>(block);
    for (std::int64_t k = 0; k < m; ++k)
      values[k] = start + static_cast<double>(first + i + k) * step;
  });
}

}  // namespace shmap::cpu
