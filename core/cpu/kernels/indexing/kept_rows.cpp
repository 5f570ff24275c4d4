#include "core/cpu/kernels/indexing/kept_rows.h"

#include <algorithm>
#include <array>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/indexing/kept_rows.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/vector/compress-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

std::int64_t keep(const std::int32_t* indices, std::int64_t count, std::int32_t from_end,
                  bool clips, std::int32_t most, std::int32_t first, std::int32_t last,
                  std::int32_t* rows, std::int32_t* at) {
  const auto begin = static_cast<std::uint32_t>(first);
  const std::uint32_t width = static_cast<std::uint32_t>(last) - begin;
  std::int64_t k = 0, kept = 0;
#if SHMAP_VECTORS
  namespace hn = hwy::HWY_NAMESPACE;
  using D = hn::ScalableTag<std::int32_t>;
  const D d;
  const hn::RebindToUnsigned<D> u;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D{}));
  static_assert(lanes <= kKeptRoom);
  const auto zero = hn::Zero(d), top = hn::Set(d, most), low = hn::Set(d, first);
  const auto end = hn::Set(d, from_end);
  const auto wide = hn::Set(u, width);
  auto place = hn::Iota(d, 0);
  for (; k + lanes <= count; k += lanes) {
    auto i = hn::LoadU(d, indices + k);
    i = hn::Add(i, hn::And(hn::BroadcastSignBit(i), end));
    if (clips) i = hn::Max(hn::Min(i, top), zero);
    // One unsigned comparison tests both bounds: i - first of an index below `first` wraps to at
    // least 2^31 - first.
    const auto inside = hn::RebindMask(d, hn::Lt(hn::BitCast(u, hn::Sub(i, low)), wide));
    const KeptLanes<D> lanes_kept(inside);
    hn::StoreU(lanes_kept.compressed(i), d, rows + kept);
    hn::StoreU(lanes_kept.compressed(place), d, at + kept);
    kept += lanes_kept.count;
    place = hn::Add(place, hn::Set(d, static_cast<std::int32_t>(lanes)));
  }
#endif
  for (; k < count; ++k) {
    const std::int32_t index = indices[k] + (indices[k] < 0 ? from_end : 0);
    const std::int32_t i = clips ? std::clamp(index, 0, most) : index;
    rows[kept] = i;
    at[kept] = static_cast<std::int32_t>(k);
    kept += static_cast<std::uint32_t>(i) - begin < width;
  }
  return kept;
}

KeepRowsFn find_keep_rows() { return keep; }

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_keep_rows);
KeepRowsFn keep_rows_kernel() { return SHMAP_BEST(find_keep_rows)(); }
}  // namespace shmap::cpu
#endif
