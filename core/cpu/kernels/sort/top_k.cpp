#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/element_type.h"
#include "core/cpu/kernels/sort/next_larger.h"
#include "core/cpu/kernels/sort/sort_keys.h"
#include "core/cpu/kernels/sort/sort_shared.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/sort/top_k.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/sort/sort_items-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

using std::int64_t;

constexpr int64_t kFewLargest = 32;  // up to this k, the largest elements so far are kept in order

// Sets best[0 … k) to the k largest elements of a row, by insertion. Most elements are only
// compared with the least of these.
template <class T>
void few_largest(const T* row, int64_t len, int64_t k, NextLargerFn next_larger,
                 Item<WideKey<T>>* best) {
  for (int64_t i = 0; i < len; ++i) {
    if (i >= k) {
      const T& least = row[best[k - 1].index()];
      if (best[k - 1].key() == 0) return;  // a NaN: nothing is larger
      i = next_larger(row, i, len, &least);
      if (i == len) return;
    }
    const WideKey<T> key = static_cast<SortKey<T>>(~sort_key(row[i]));
    int64_t at = std::min(i, k);
    if (at == k && !(key < best[k - 1].key())) continue;
    if (at == k) --at;
    for (; at > 0 && key < best[at - 1].key(); --at) best[at] = best[at - 1];
    best[at] = {key, static_cast<std::uint32_t>(i)};
  }
}

template <class T>
void top_k_rows(const TopK& t, int64_t begin, int64_t end) {
  std::vector<Item<WideKey<T>>> items(static_cast<std::size_t>(t.k <= kFewLargest ? t.k : t.len));
  const NextLargerFn next_larger = next_larger_kernel(t.dtype);
  for (int64_t n = begin; n < end; ++n) {
    const T* const row = static_cast<const T*>(t.in) + n * t.len;
    if (t.k <= kFewLargest) {
      few_largest(row, t.len, t.k, next_larger, items.data());
    } else {
      for (int64_t i = 0; i < t.len; ++i)
        items[static_cast<std::size_t>(i)] = {static_cast<SortKey<T>>(~sort_key(row[i])),
                                              static_cast<std::uint32_t>(i)};
      const auto kth = items.begin() + t.k;
      if (t.k < t.len) std::nth_element(items.begin(), kth, items.end());
      std::sort(items.begin(), kth);
    }
    for (int64_t i = 0; i < t.k; ++i) {
      const std::uint32_t from = items[static_cast<std::size_t>(i)].index();
      if (t.values != nullptr) static_cast<T*>(t.values)[n * t.k + i] = row[from];
      if (t.indices != nullptr) t.indices[n * t.k + i] = static_cast<std::int32_t>(from);
    }
  }
}

TopKFn find_top_k(DType dtype) {
  return with_plain(dtype, []<class T>() -> TopKFn { return top_k_rows<Sorted<T>>; });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_top_k);

using std::int64_t;

void top_k(const TopK& t) { top_k_part(t, 0, 1); }

int top_k_parts(const TopK& t, int workers) {
  const int64_t most = std::max<int64_t>(1, std::min<int64_t>(workers, t.outer));
  return static_cast<int>(std::clamp<int64_t>(t.outer * t.len / kSortPart, 1, most));
}

void top_k_part(const TopK& t, int part, int parts) {
  const TopKFn top_k_rows = SHMAP_BEST(find_top_k)(t.dtype);
  check_sort("top_k", t.dtype, top_k_rows != nullptr, t.len);
  const int64_t begin = t.outer * part / parts, end = t.outer * (part + 1) / parts;
  if (t.k > 0 && begin < end) top_k_rows(t, begin, end);
}

}  // namespace shmap::cpu
#endif
