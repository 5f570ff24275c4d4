#include "core/cpu/kernels/elementwise/select.h"

#include <algorithm>
#include <cstring>

#include "core/base/word_type.h"
#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/fill.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/elementwise/select.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/vector/extremes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

using SelectFn = void (*)(const void* pred, const void* on_true, bool true_scalar,
                          const void* on_false, bool false_scalar, void* out, std::int64_t n);

// Reads both sides for each element, so that the loops are vectorised.
template <class T>
void choose(const void* pred, const void* on_true, bool true_scalar, const void* on_false,
            bool false_scalar, void* out, std::int64_t n) {
  const std::uint8_t* p = static_cast<const std::uint8_t*>(pred);
  const T* t = static_cast<const T*>(on_true);
  const T* f = static_cast<const T*>(on_false);
  T* o = static_cast<T*>(out);
  const T t_value = *t, f_value = *f;
  if (true_scalar && false_scalar) {
    SHMAP_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) o[i] = p[i] ? t_value : f_value;
  } else if (true_scalar) {
    SHMAP_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) {
      const T y = f[i];
      o[i] = p[i] ? t_value : y;
    }
  } else if (false_scalar) {
    SHMAP_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) {
      const T x = t[i];
      o[i] = p[i] ? x : f_value;
    }
  } else {
    SHMAP_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) {
      const T x = t[i], y = f[i];
      o[i] = p[i] ? x : y;
    }
  }
}

using ClampFn = void (*)(const void* low, bool low_scalar, const void* x, const void* high,
                         bool high_scalar, void* out, std::int64_t n);

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;

// Does the same in one pass as max and then min (binary_float.cpp).
template <class T>
void clamp_floats(const void* low, bool low_scalar, const void* x, const void* high,
                  bool high_scalar, void* out, std::int64_t n) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr std::int64_t lanes = hn::MaxLanes(D{});
  const T* l = static_cast<const T*>(low);
  const T* a = static_cast<const T*>(x);
  const T* h = static_cast<const T*>(high);
  T* o = static_cast<T*>(out);
  const auto low_all = hn::Set(d, *l), high_all = hn::Set(d, *h);
  const auto clamped = [&](auto least, auto value, auto most)
                           HWY_ATTR { return smaller(larger(least, value), most); };
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto least = low_scalar ? low_all : hn::LoadU(d, l + i);
    const auto most = high_scalar ? high_all : hn::LoadU(d, h + i);
    hn::StoreU(clamped(least, hn::LoadU(d, a + i), most), d, o + i);
  }
  if (i == n) return;
  const auto some = hn::FirstN(d, static_cast<std::size_t>(n - i));
  const auto least = low_scalar ? low_all : hn::MaskedLoad(some, d, l + i);
  const auto most = high_scalar ? high_all : hn::MaskedLoad(some, d, h + i);
  hn::BlendedStore(clamped(least, hn::MaskedLoad(some, d, a + i), most), some, d, o + i);
}
ClampFn find_clamp(DType dtype) {
  return dtype == DType::f32   ? clamp_floats<float>
         : dtype == DType::f64 ? clamp_floats<double>
                               : nullptr;
}
#else
ClampFn find_clamp(DType) { return nullptr; }
#endif

SelectFn find_select(int itemsize) {
  return with_word(itemsize, []<class T>() -> SelectFn { return choose<T>; });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_select);
SHMAP_KERNELS(find_clamp);

void select(const void* pred, bool pred_scalar, const void* on_true, bool true_scalar,
            const void* on_false, bool false_scalar, void* out, int itemsize, std::int64_t n) {
  if (n <= 0) return;
  if (!pred_scalar) {
    SHMAP_BEST(find_select)(itemsize)(pred, on_true, true_scalar, on_false, false_scalar, out, n);
    return;
  }
  const bool taken = *static_cast<const std::uint8_t*>(pred) != 0;
  const void* side = taken ? on_true : on_false;
  if (taken ? true_scalar : false_scalar) {
    std::uint64_t value = 0;  // a copy: `out` may be the scalar if n is 1
    std::memcpy(&value, side, static_cast<std::size_t>(itemsize));
    fill(out, &value, itemsize, n);
  } else if (side != out) {
    std::memcpy(out, side, static_cast<std::size_t>(n) * static_cast<std::size_t>(itemsize));
  }
}

void clamp(DType dtype, const void* low, bool low_scalar, const void* x, const void* high,
           bool high_scalar, void* out, std::int64_t n) {
  if (n <= 0) return;
  if (const auto kernel = SHMAP_BEST(find_clamp)(dtype))
    return kernel(low, low_scalar, x, high, high_scalar, out, n);
  constexpr std::int64_t kBlockBytes = 4096;
  const BinaryFn max = binary_kernel(BinaryOp::max, dtype);
  const BinaryFn min = binary_kernel(BinaryOp::min, dtype);
  const std::int64_t size = itemsize(dtype), block = kBlockBytes / size;
  alignas(64) std::byte raised[kBlockBytes];  // as `out` may be `high`
  for (std::int64_t i = 0; i < n; i += block) {
    const std::int64_t m = std::min(block, n - i), at = i * size;
    const auto offset = [at](const void* p, bool scalar) {
      return static_cast<const std::byte*>(p) + (scalar ? 0 : at);
    };
    max(offset(low, low_scalar), low_scalar, offset(x, false), false, raised, m);
    min(raised, false, offset(high, high_scalar), high_scalar, static_cast<std::byte*>(out) + at,
        m);
  }
}

}  // namespace shmap::cpu
#endif
