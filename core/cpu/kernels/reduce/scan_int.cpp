// Cumulative operations along a contiguous line of integers, for which any order of operations
// gives the same bits: within a vector in steps of 1, 2, 4 … lanes.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/base/element_type.h"
#include "core/cpu/kernels/reduce/scan_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/reduce/scan_int.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;
#define SHMAP_VECTOR_OP(expression)        \
  static constexpr bool has_vector = true; \
  template <class V>                       \
  static HWY_INLINE V vector(V a, V b) {   \
    return expression;                     \
  }
#else
#define SHMAP_VECTOR_OP(expression)
#endif

// Sums and products are computed in an unsigned type of at least int's width, which wraps around.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Sum {
  template <class T>
  static constexpr T neutral = 0;
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
  SHMAP_VECTOR_OP(hn::Add(a, b))
};
struct Prod {
  template <class T>
  static constexpr T neutral = 1;
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
#if SHMAP_VECTORS
  static constexpr bool has_vector = false;  // AVX2 has no such operation on 64 bits
#endif
};
struct Max {
  template <class T>
  static constexpr T neutral = std::numeric_limits<T>::lowest();
  template <class T>
  static T run(T a, T b) {
    return std::max(a, b);
  }
  SHMAP_VECTOR_OP(hn::Max(a, b))
};
struct Min {
  template <class T>
  static constexpr T neutral = std::numeric_limits<T>::max();
  template <class T>
  static T run(T a, T b) {
    return std::min(a, b);
  }
  SHMAP_VECTOR_OP(hn::Min(a, b))
};
#undef SHMAP_VECTOR_OP

#if SHMAP_VECTORS
// Scans as many whole vectors as the line has, from its end if `reverse`. Returns the number of
// elements that were scanned; *running becomes the result for the last of them.
template <class Op, bool reverse, class T>
std::int64_t scan_vectors(const T* from, T* to, std::int64_t n, T* running) {
  using D = hn::ScalableTag<T>;
  using Index = hwy::MakeSigned<T>;
  const D d;
  constexpr std::int64_t lanes = hn::MaxLanes(D{});
  constexpr int kSteps = lanes == 16 ? 4 : lanes == 8 ? 3 : lanes == 4 ? 2 : 1;
  static_assert(std::int64_t{1} << kSteps == lanes);
  const auto lane_before = [&](std::int64_t distance) HWY_ATTR {
    alignas(64) Index index[lanes];
    for (std::int64_t j = 0; j < lanes; ++j)
      index[j] = static_cast<Index>(std::max<std::int64_t>(j - distance, 0));
    return hn::SetTableIndices(d, index);
  };
  alignas(64) Index last_index[lanes];
  for (std::int64_t j = 0; j < lanes; ++j) last_index[j] = static_cast<Index>(lanes - 1);
  const auto last = hn::SetTableIndices(d, last_index);
  const auto by1 = lane_before(1), by2 = lane_before(2), by4 = lane_before(4), by8 = lane_before(8);
  const auto neutral = hn::Set(d, Op::template neutral<T>);
  auto before = hn::Set(d, *running);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const std::int64_t at = reverse ? n - i - lanes : i;
    auto x = hn::LoadU(d, from + at);
    if constexpr (reverse) x = hn::Reverse(d, x);
    const auto step = [&](auto by, std::size_t distance) HWY_ATTR {
      const auto earlier = hn::TableLookupLanes(x, by);
      x = Op::vector(x, hn::IfThenElse(hn::FirstN(d, distance), neutral, earlier));
    };
    if constexpr (kSteps > 0) step(by1, 1);
    if constexpr (kSteps > 1) step(by2, 2);
    if constexpr (kSteps > 2) step(by4, 4);
    if constexpr (kSteps > 3) step(by8, 8);
    auto result = Op::vector(x, before);
    before = Op::vector(before, hn::TableLookupLanes(x, last));
    if constexpr (reverse) result = hn::Reverse(d, result);
    hn::StoreU(result, d, to + at);
  }
  *running = hn::GetLane(before);
  return i;
}
#endif

template <class Op, class T>
void scan_line(const void* in, void* out, std::int64_t n, bool reverse, const void* before) {
  const T* const from = static_cast<const T*>(in);
  T* const to = static_cast<T*>(out);
  T running = before == nullptr ? Op::template neutral<T> : *static_cast<const T*>(before);
  std::int64_t i = 0;
#if SHMAP_VECTORS
  if constexpr (Op::has_vector && sizeof(T) >= 4) {
    i = reverse ? scan_vectors<Op, true>(from, to, n, &running)
                : scan_vectors<Op, false>(from, to, n, &running);
  }
#endif
  for (; i < n; ++i) {
    const std::int64_t at = reverse ? n - 1 - i : i;
    running = Op::run(running, from[at]);
    to[at] = running;
  }
}

LineScanFn find_line_scan(Cumulative op, DType dtype) {
  if (is_floating(dtype)) return nullptr;
  return with_native(dtype, [op]<class T>() -> LineScanFn {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      switch (op) {
        case Cumulative::cumsum:
          return scan_line<Sum, U>;
        case Cumulative::cumprod:
          return scan_line<Prod, U>;
        case Cumulative::cummax:
          return scan_line<Max, T>;
        case Cumulative::cummin:
          return scan_line<Min, T>;
        default:
          break;
      }
    }
    return nullptr;
  });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_line_scan);
LineScanFn line_scan_kernel(Cumulative op, DType dtype) {
  return SHMAP_BEST(find_line_scan)(op, dtype);
}
}  // namespace shmap::cpu
#endif
