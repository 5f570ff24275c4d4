#include "core/cpu/kernels/sort/next_larger.h"

#include <cstring>
#include <type_traits>

#include "core/base/element_type.h"
#include "core/base/float_format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/sort/next_larger.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;
#endif

// An element type that is compared as it is.
template <class T>
struct Native {
  using Stored = T;
  static bool larger(T x, T bound) { return !(x <= bound); }  // true for a NaN
#if SHMAP_VECTORS
  template <class D>
  static HWY_INLINE auto larger_mask(D, hn::Vec<D> x, hn::Vec<D> bound) {
    if constexpr (std::is_floating_point_v<T>)
      return hn::Not(hn::Le(x, bound));
    else
      return hn::Gt(x, bound);
  }
#endif
};

// A half type, compared by its bits as integers; the bits of negative values are flipped.
template <DType dtype>
struct Half {
  static constexpr auto infinity =
      static_cast<std::int16_t>(infinity_bits(dtype));  // NaNs lie above
  using Stored = std::int16_t;
  static std::int16_t ordered(std::int16_t x) {
    return static_cast<std::int16_t>(x ^ ((x >> 15) & 0x7fff));
  }
  static bool larger(std::int16_t x, std::int16_t bound) {
    return ordered(x) > ordered(bound) || (x & 0x7fff) > infinity;
  }
#if SHMAP_VECTORS
  template <class D>
  static HWY_INLINE auto larger_mask(D d, hn::Vec<D> x, hn::Vec<D> bound) {
    const auto magnitude = hn::Set(d, std::int16_t{0x7fff});
    const auto ordered_bits = [&](hn::Vec<D> v) HWY_ATTR {
      return hn::Xor(v, hn::And(hn::ShiftRight<15>(v), magnitude));
    };
    return hn::Or(hn::Gt(ordered_bits(x), ordered_bits(bound)),
                  hn::Gt(hn::And(x, magnitude), hn::Set(d, infinity)));
  }
#endif
};

template <class Compared>
std::int64_t next_larger(const void* row, std::int64_t from, std::int64_t len, const void* bound) {
  using T = typename Compared::Stored;
  const T* const x = static_cast<const T*>(row);
  T limit;
  std::memcpy(&limit, bound, sizeof limit);
  std::int64_t i = from;
#if SHMAP_VECTORS
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr std::int64_t step = hn::MaxLanes(D{});
  const auto limits = hn::Set(d, limit);
  const auto found = [&](std::int64_t at) HWY_ATTR {
    return Compared::larger_mask(d, hn::LoadU(d, x + at), limits);
  };
  for (; i + 4 * step <= len; i += 4 * step) {
    const auto any =
        hn::Or(hn::Or(found(i), found(i + step)), hn::Or(found(i + 2 * step), found(i + 3 * step)));
    if (!hn::AllFalse(d, any)) break;
  }
  for (; i + step <= len; i += step) {
    const std::int64_t at = hn::FindFirstTrue(d, found(i));
    if (at >= 0) return i + at;
  }
#endif
  while (i < len && !Compared::larger(x[i], limit)) ++i;
  return i;
}

NextLargerFn find_next_larger(DType dtype) {
  if (dtype == DType::f16) return next_larger<Half<DType::f16>>;
  if (dtype == DType::bf16) return next_larger<Half<DType::bf16>>;
  return with_native(dtype, []<class T>() -> NextLargerFn { return next_larger<Native<T>>; });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_next_larger);
NextLargerFn next_larger_kernel(DType dtype) { return SHMAP_BEST(find_next_larger)(dtype); }
}  // namespace shmap::cpu
#endif
