#include "core/cpu/kernels/take_words.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/take_words.cpp"
#include "core/cpu/kernels/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

void place(const std::int32_t* indices, std::int64_t count, IndexMode mode, std::int32_t last,
           std::int32_t step, std::int32_t* at) {
  switch (mode) {
    case IndexMode::clip:
      for (std::int64_t k = 0; k < count; ++k)
        at[k] = std::min(std::max(indices[k], 0), last) * step;
      return;
    case IndexMode::fill_or_drop:
      for (std::int64_t k = 0; k < count; ++k) {
        const std::int32_t inside = std::min(std::max(indices[k], 0), last);
        at[k] = inside == indices[k] ? inside * step : -1;
      }
      return;
    case IndexMode::promise_in_bounds:
      for (std::int64_t k = 0; k < count; ++k) at[k] = indices[k] * step;
  }
}

void take(const std::uint32_t* table, const std::int32_t* at, std::int64_t count,
          std::uint32_t fill, std::uint32_t* out) {
  std::int64_t k = 0;
#if SHMAP_VECTORS
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::int32_t> d;
  const hn::ScalableTag<std::uint32_t> u;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<std::int32_t>{}));
  const auto zero = hn::Zero(d);
  const auto filled = hn::Set(u, fill);
  for (; k + lanes <= count; k += lanes) {
    const auto i = hn::LoadU(d, at + k);
    const auto outside = hn::RebindMask(u, hn::Lt(i, zero));
    const auto taken = hn::GatherIndex(u, table, hn::Max(i, zero));
    hn::StoreU(hn::IfThenElse(outside, filled, taken), u, out + k);
  }
#endif
  for (; k < count; ++k) out[k] = at[k] < 0 ? fill : table[at[k]];
}

TakeWords find_take_words() { return {place, take}; }

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_take_words);
TakeWords take_words_kernels() { return SHMAP_BEST(find_take_words)(); }
}  // namespace shmap::cpu
#endif
