#include "core/cpu/kernels/elementwise/cast.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/float_format.h"
#include "core/cpu/kernels/elementwise/cast_lookup.h"

namespace shmap::cpu {
namespace {

// Converts through f32, in blocks that stay in the first-level cache.
template <DType from, DType to>
void through_f32(const void* in, void* out, std::int64_t n) {
  static const CastFn first =
      from == DType::f64 ? f64_to_odd_f32_kernel() : cast_kernel(from, DType::f32);
  static const CastFn second = cast_kernel(DType::f32, to);
  constexpr std::int64_t kBlock = 512;
  alignas(64) float block[kBlock];
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t m = std::min(kBlock, n - i);
    first(static_cast<const std::byte*>(in) + i * itemsize(from), block, m);
    second(block, static_cast<std::byte*>(out) + i * itemsize(to), m);
  }
}

template <DType half, int... others>
CastFn find_from_half(DType to, std::integer_sequence<int, others...>) {
  static constexpr std::array<CastFn, sizeof...(others)> table = {
      through_f32<half, static_cast<DType>(others)>...};
  return table[static_cast<std::size_t>(to)];
}
template <DType half, int... others>
CastFn find_to_half(DType from, std::integer_sequence<int, others...>) {
  static constexpr std::array<CastFn, sizeof...(others)> table = {
      through_f32<static_cast<DType>(others), half>...};
  return table[static_cast<std::size_t>(from)];
}

template <int bytes>
void copy(const void* in, void* out, std::int64_t n) {
  if (in != out && n > 0) std::memcpy(out, in, static_cast<std::size_t>(n) * bytes);
}

}  // namespace

CastFn cast_kernel(DType from, DType to) {
  if (from == DType::prng_key || to == DType::prng_key) return nullptr;
  const bool same_bits = is_integer(from) && is_integer(to) && itemsize(from) == itemsize(to);
  if (from == to || same_bits) {
    constexpr std::array<CastFn, 9> copies = {nullptr, copy<1>, copy<2>, nullptr, copy<4>,
                                              nullptr, nullptr, nullptr, copy<8>};
    return copies[static_cast<std::size_t>(itemsize(to))];
  }
  if (is_half(from) && to == DType::f32) return half_to_f32_kernel(from);
  if (is_half(to) && from == DType::f32) return f32_to_half_kernel(to);
  constexpr auto all = std::make_integer_sequence<int, static_cast<int>(DType::f64) + 1>{};
  if (from == DType::f16) return find_from_half<DType::f16>(to, all);
  if (from == DType::bf16) return find_from_half<DType::bf16>(to, all);
  if (to == DType::f16) return find_to_half<DType::f16>(from, all);
  if (to == DType::bf16) return find_to_half<DType::bf16>(from, all);
  return cast_plain_kernel(from, to);
}

}  // namespace shmap::cpu
