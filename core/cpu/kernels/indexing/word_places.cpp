#include "core/cpu/kernels/indexing/word_places.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/indexing/word_places.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

void place(const std::int32_t* indices, std::int64_t count, IndexMode mode, std::int32_t from_end,
           std::int32_t last, std::int32_t step, std::int32_t* at) {
  const auto index = [=](std::int64_t k) { return indices[k] + (indices[k] < 0 ? from_end : 0); };
  switch (mode) {
    case IndexMode::clip:
      for (std::int64_t k = 0; k < count; ++k) at[k] = std::min(std::max(index(k), 0), last) * step;
      return;
    case IndexMode::fill_or_drop:
      for (std::int64_t k = 0; k < count; ++k) {
        const std::int32_t inside = std::min(std::max(index(k), 0), last);
        at[k] = inside == index(k) ? inside * step : -1;
      }
  }
}

WordPlacesFn find_word_places() { return place; }

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_word_places);
WordPlacesFn word_places_kernel() { return SHMAP_BEST(find_word_places)(); }
}  // namespace shmap::cpu
#endif
