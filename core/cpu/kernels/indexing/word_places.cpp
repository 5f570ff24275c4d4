#include "core/cpu/kernels/indexing/word_places.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/indexing/word_places.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// The two forms of `at` are loops of their own, which the compiler turns into vectors.
template <class Index, class Put>
void place_all(Index index, std::int64_t count, IndexMode mode, std::int32_t last,
               std::int32_t step, Put put) {
  switch (mode) {
    case IndexMode::clip:
      for (std::int64_t k = 0; k < count; ++k) put(k, std::min(std::max(index(k), 0), last) * step);
      return;
    case IndexMode::fill_or_drop:
      for (std::int64_t k = 0; k < count; ++k) {
        const std::int32_t inside = std::min(std::max(index(k), 0), last);
        put(k, inside == index(k) ? inside * step : -1);
      }
  }
}

void place(const std::int32_t* indices, std::int64_t stride, std::int64_t count, IndexMode mode,
           std::int32_t from_end, std::int32_t last, std::int32_t step, std::int32_t* at,
           bool add) {
  const auto counted = [=](std::int32_t i) { return i + (i < 0 ? from_end : 0); };
  const auto with_stride = [=](auto index) {
    // A number's sign, shifted by 31, is -1 or 0.
    if (add)
      place_all(index, count, mode, last, step, [at](std::int64_t k, std::int32_t place) {
        at[k] = (at[k] + place) | ((at[k] | place) >> 31);
      });
    else
      place_all(index, count, mode, last, step,
                [at](std::int64_t k, std::int32_t place) { at[k] = place; });
  };
  if (stride == 1)
    with_stride([=](std::int64_t k) { return counted(indices[k]); });
  else if (stride == 2)
    with_stride([=](std::int64_t k) { return counted(indices[2 * k]); });
  else
    with_stride([=](std::int64_t k) { return counted(indices[stride * k]); });
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
