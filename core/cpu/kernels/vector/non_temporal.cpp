#include "core/cpu/kernels/vector/non_temporal.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/vector/non_temporal.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kLine = 64;

// `out` must be the start of a cache line.
void store_lines(std::byte* out, const std::byte* in, std::int64_t lines) {
#if SHMAP_VECTORS
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  constexpr std::int64_t step = hn::MaxLanes(hn::ScalableTag<float>{});
  const float* a = reinterpret_cast<const float*>(in);
  float* o = reinterpret_cast<float*>(out);
  for (std::int64_t i = 0; i < lines * (kLine / 4); i += step)
    hn::Stream(hn::LoadU(d, a + i), d, o + i);
#elif defined(__SSE2__)
  for (std::int64_t at = 0; at < lines * kLine; at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + at)));
  }
#else
  std::memcpy(out, in, static_cast<std::size_t>(lines * kLine));
#endif
}

using StoreLines = void (*)(std::byte*, const std::byte*, std::int64_t);
StoreLines find_store_lines() { return store_lines; }

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_store_lines);

void store_non_temporal(void* out, const void* in, std::int64_t bytes) {
  static const auto store = SHMAP_BEST(find_store_lines)();
  constexpr std::int64_t kLine = 64;
  std::byte* o = static_cast<std::byte*>(out);
  const std::byte* a = static_cast<const std::byte*>(in);
  const std::int64_t head = std::min<std::int64_t>(
      bytes, static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(o) & (kLine - 1)));
  std::memcpy(o, a, static_cast<std::size_t>(head));
  const std::int64_t lines = (bytes - head) / kLine, at = head + lines * kLine;
  store(o + head, a + head, lines);
  std::memcpy(o + at, a + at, static_cast<std::size_t>(bytes - at));
}

void non_temporal_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

void copy_non_temporal(void* out, const void* in, std::int64_t bytes) {
  store_non_temporal(out, in, bytes);
  non_temporal_fence();
}

}  // namespace shmap::cpu
#endif
