// Conversions among bool, integers, f32 and f64.
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "core/base/element_type.h"
#include "core/cpu/kernels/elementwise/cast_lookup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/elementwise/cast_plain.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/vector/short_cast-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// The loop over this function has no branches, so that the compiler vectorises it. The operand of
// the conversion is always in range.
template <class T, std::floating_point F>
T saturated(F x) {
  constexpr F upper = F{2} * static_cast<F>(T{1} << (std::numeric_limits<T>::digits - 1));
  constexpr F lower = std::is_signed_v<T> ? -upper : F{0};
  using Step = std::conditional_t<sizeof(T) < 4, std::int32_t, T>;
  F inside = x < upper ? x : F{0};  // a NaN becomes 0
  inside = inside > lower ? inside : lower;
  const T converted = static_cast<T>(static_cast<Step>(inside));
  return x >= upper ? std::numeric_limits<T>::max() : converted;
}

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;

template <class To>
void convert_short(const void* in, void* out, std::int64_t n) {
  using D = hn::ScalableTag<float>;
  const D d;
  const hn::Rebind<To, D> narrow;
  constexpr std::int64_t lanes = hn::MaxLanes(D{});
  const float* a = static_cast<const float*>(in);
  To* o = static_cast<To*>(out);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(to_short<To>(d, hn::LoadU(d, a + i)), narrow, o + i);
  if (i == n) return;
  To rest[lanes];
  const auto some = hn::FirstN(d, static_cast<std::size_t>(n - i));
  hn::StoreU(to_short<To>(d, hn::MaskedLoad(some, d, a + i)), narrow, rest);
  std::copy_n(rest, n - i, o + i);
}
#endif

template <class From, class To>
void convert(const void* in, void* out, std::int64_t n) {
  const From* a = static_cast<const From*>(in);
  To* o = static_cast<To*>(out);
  SHMAP_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::floating_point<From> && std::integral<To>)
      o[i] = saturated<To>(a[i]);
    else
      o[i] = static_cast<To>(a[i]);
  }
}

template <class From>
void test(const void* in, void* out, std::int64_t n) {
  const From* a = static_cast<const From*>(in);
  std::uint8_t* o = static_cast<std::uint8_t*>(out);
  SHMAP_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) o[i] = a[i] != From{0};
}

// A conversion between integers depends only on the source's sign and the target's size.
template <class From>
CastFn find_from(DType to) {
  using Tested = typename std::conditional_t<std::floating_point<From>, std::type_identity<From>,
                                             std::make_unsigned<From>>::type;
  if (to == DType::bool_) return test<Tested>;
  return with_native(to, []<class To>() -> CastFn {
#if SHMAP_VECTORS
    if constexpr (std::is_same_v<From, float> && std::integral<To> && sizeof(To) <= 2)
      return convert_short<To>;
    else
#endif
        if constexpr (std::integral<From> && std::integral<To>)
      return convert<From, std::make_unsigned_t<To>>;
    else
      return convert<From, To>;
  });
}

CastFn find_cast_plain(DType from, DType to) {
  return with_native(from, [to]<class From>() { return find_from<From>(to); });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_cast_plain);
CastFn cast_plain_kernel(DType from, DType to) { return SHMAP_BEST(find_cast_plain)(from, to); }
}  // namespace shmap::cpu
#endif
