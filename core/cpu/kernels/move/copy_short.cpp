#include "core/cpu/kernels/move/copy_short.h"

#include <cstddef>
#include <cstring>

#include "core/base/word_type.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/move/copy_short.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE T get(const char* from, std::int64_t i) {
  T item;
  std::memcpy(&item, from + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return item;
}
template <class T>
HWY_INLINE void put(char* to, std::int64_t i, T item) {
  std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), &item, sizeof(T));
}

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;

// The bytes at p as vectors, aligned or not.
template <class T>
HWY_INLINE const T* at(const char* p) {
  return reinterpret_cast<const T*>(p);
}
template <class T>
HWY_INLINE T* at(char* p) {
  return reinterpret_cast<T*>(p);
}

template <class T, int count>
void deal(const char* src, char* const* rows, std::int64_t n) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D{}));
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const T* const from = at<T>(src + i * count * size);
    hn::Vec<D> a, b, c, e;
    if constexpr (count == 2) {
      hn::LoadInterleaved2(d, from, a, b);
    } else if constexpr (count == 3) {
      hn::LoadInterleaved3(d, from, a, b, c);
    } else {
      hn::LoadInterleaved4(d, from, a, b, c, e);
    }
    hn::StoreU(a, d, at<T>(rows[0] + i * size));
    hn::StoreU(b, d, at<T>(rows[1] + i * size));
    if constexpr (count > 2) hn::StoreU(c, d, at<T>(rows[2] + i * size));
    if constexpr (count > 3) hn::StoreU(e, d, at<T>(rows[3] + i * size));
  }
  for (; i < n; ++i)
    for (int j = 0; j < count; ++j) put(rows[j], i, get<T>(src, i * count + j));
}

template <class T, int count>
void weave(const char* const* rows, char* dst, std::int64_t n) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D{}));
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    T* const to = at<T>(dst + i * count * size);
    const auto load = [&](int j) HWY_ATTR { return hn::LoadU(d, at<T>(rows[j] + i * size)); };
    if constexpr (count == 2)
      hn::StoreInterleaved2(load(0), load(1), d, to);
    else if constexpr (count == 3)
      hn::StoreInterleaved3(load(0), load(1), load(2), d, to);
    else
      hn::StoreInterleaved4(load(0), load(1), load(2), load(3), d, to);
  }
  for (; i < n; ++i)
    for (int j = 0; j < count; ++j) put(dst, i * count + j, get<T>(rows[j], i));
}

// Loads whole vectors, including the bytes between the items, as long as another item follows.
template <class T, int step>
void pick(const char* src, char* dst, std::int64_t n) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D{}));
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  std::int64_t i = 0;
  for (; i + lanes < n; i += lanes) {
    const T* const from = at<T>(src + i * step * size);
    hn::Vec<D> a, b, c, e;
    if constexpr (step == 2 && size >= 4) {
      a = hn::ConcatEven(d, hn::LoadU(d, from + lanes), hn::LoadU(d, from));
    } else if constexpr (step == 2) {
      hn::LoadInterleaved2(d, from, a, b);
    } else if constexpr (step == 3) {
      hn::LoadInterleaved3(d, from, a, b, c);
    } else {
      hn::LoadInterleaved4(d, from, a, b, c, e);
    }
    hn::StoreU(a, d, at<T>(dst + i * size));
  }
  for (; i < n; ++i) put(dst, i, get<T>(src, i * step));
}

template <class T>
void turn(const char* src, char* dst, std::int64_t n) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  std::int64_t i = 0;
  if constexpr (size > 1) {  // not every version of Highway has this operation for bytes
    using D = hn::ScalableTag<T>;
    const D d;
    constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D{}));
    for (; i + lanes <= n; i += lanes) {
      const auto last = hn::LoadU(d, at<T>(src + (n - lanes - i) * size));
      hn::StoreU(hn::Reverse(d, last), d, at<T>(dst + i * size));
    }
  }
  for (; i < n; ++i) put(dst, i, get<T>(src, n - 1 - i));
}
#else
template <class T, int count>
void deal(const char* src, char* const* rows, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    for (int j = 0; j < count; ++j) put(rows[j], i, get<T>(src, i * count + j));
}
template <class T, int count>
void weave(const char* const* rows, char* dst, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    for (int j = 0; j < count; ++j) put(dst, i * count + j, get<T>(rows[j], i));
}
template <class T, int step>
void pick(const char* src, char* dst, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) put(dst, i, get<T>(src, i * step));
}
template <class T>
void turn(const char* src, char* dst, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) put(dst, i, get<T>(src, n - 1 - i));
}
#endif

struct ShortKernels {
  DealFn deal[kShortRows + 1] = {};
  WeaveFn weave[kShortRows + 1] = {};
  PickFn pick[kShortRows + 1] = {};
  TurnFn turn = nullptr;
};

template <class T>
const ShortKernels* kernels_of() {
  static constexpr ShortKernels kernels = {
      {nullptr, nullptr, deal<T, 2>, deal<T, 3>, deal<T, 4>},
      {nullptr, nullptr, weave<T, 2>, weave<T, 3>, weave<T, 4>},
      {nullptr, nullptr, pick<T, 2>, pick<T, 3>, pick<T, 4>},
      turn<T>};
  return &kernels;
}

const ShortKernels* find(int itemsize) {
  return with_word(itemsize, []<class T>() { return kernels_of<T>(); });
}

DealFn find_deal(int itemsize, std::int64_t count) {
  const ShortKernels* const kernels = find(itemsize);
  return kernels != nullptr && count > 1 && count <= kShortRows ? kernels->deal[count] : nullptr;
}
WeaveFn find_weave(int itemsize, std::int64_t count) {
  const ShortKernels* const kernels = find(itemsize);
  return kernels != nullptr && count > 1 && count <= kShortRows ? kernels->weave[count] : nullptr;
}
PickFn find_pick(int itemsize, std::int64_t step) {
  const ShortKernels* const kernels = find(itemsize);
  return kernels != nullptr && step > 1 && step <= kShortRows ? kernels->pick[step] : nullptr;
}
TurnFn find_turn(int itemsize) {
  const ShortKernels* const kernels = find(itemsize);
  return kernels != nullptr ? kernels->turn : nullptr;
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_deal);
SHMAP_KERNELS(find_weave);
SHMAP_KERNELS(find_pick);
SHMAP_KERNELS(find_turn);
DealFn deal_kernel(int itemsize, std::int64_t count) {
  return SHMAP_BEST(find_deal)(itemsize, count);
}
WeaveFn weave_kernel(int itemsize, std::int64_t count) {
  return SHMAP_BEST(find_weave)(itemsize, count);
}
PickFn pick_kernel(int itemsize, std::int64_t step) {
  return SHMAP_BEST(find_pick)(itemsize, step);
}
TurnFn turn_kernel(int itemsize) { return SHMAP_BEST(find_turn)(itemsize); }
}  // namespace shmap::cpu
#endif
