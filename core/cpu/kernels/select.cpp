#include "core/cpu/kernels/select.h"

#include <algorithm>
#include <cstring>

#include "core/cpu/kernels/binary.h"
#include "core/cpu/kernels/fill.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/select.cpp"
#include "core/cpu/kernels/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

using SelectFn = void (*)(const void* pred, const void* on_true, bool true_scalar,
                          const void* on_false, bool false_scalar, void* out, std::int64_t n);

// Each element reads both sides, so that the loops are vectorised.
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

SelectFn find_select(int itemsize) {
  switch (itemsize) {
    case 1:
      return choose<std::uint8_t>;
    case 2:
      return choose<std::uint16_t>;
    case 4:
      return choose<std::uint32_t>;
    case 8:
      return choose<std::uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_select);

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
    std::uint64_t value = 0;  // a copy: a scalar may lie in `out` where n is 1
    std::memcpy(&value, side, static_cast<std::size_t>(itemsize));
    fill(out, &value, itemsize, n);
  } else if (side != out) {
    std::memcpy(out, side, static_cast<std::size_t>(n) * static_cast<std::size_t>(itemsize));
  }
}

void clamp(DType dtype, const void* low, bool low_scalar, const void* x, const void* high,
           bool high_scalar, void* out, std::int64_t n) {
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
