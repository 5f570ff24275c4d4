#include "core/cpu/kernels/reduce/arg_reduce_loops.h"

#include <type_traits>

#include "core/base/element_type.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/reduce/arg_reduce_loops.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

template <class T>
std::int64_t find(const void* in, std::int64_t n, const void* value) {
  const T* p = static_cast<const T*>(in);
  const T wanted = *static_cast<const T*>(value);
  const bool nan = wanted != wanted;
  constexpr std::int64_t kStep = 64;  // elements to compare before the first test of the
                                      // result
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    std::uint8_t any = 0;
    for (std::int64_t j = 0; j < kStep; ++j) {
      const T x = p[i + j];
      any |= static_cast<std::uint8_t>((x == wanted) | (nan & (x != x)));
    }
    if (any) break;
  }
  while (i + 1 < n && !(p[i] == wanted || (nan && p[i] != p[i]))) ++i;
  return i;
}

template <bool largest, class T>
bool goes_before(T a, T b) {
  const bool beyond = largest ? a > b : a < b;
  if constexpr (std::is_floating_point_v<T>)
    return beyond | ((a != a) & (b == b));
  else
    return beyond;
}

template <bool largest, class T>
bool before(const void* a, const void* b) {
  return goes_before<largest>(*static_cast<const T*>(a), *static_cast<const T*>(b));
}

template <bool largest, class T>
void update(const void* row, std::int32_t index, void* best, std::int32_t* best_index,
            std::int64_t n) {
  const T* r = static_cast<const T*>(row);
  T* b = static_cast<T*>(best);
  SHMAP_INDEPENDENT
  for (std::int64_t j = 0; j < n; ++j) {
    const T x = r[j], y = b[j];
    const std::int32_t old = best_index[j];
    const bool wins = goes_before<largest>(x, y);
    b[j] = wins ? x : y;
    best_index[j] = wins ? index : old;
  }
}

template <class T>
ArgLoops parts(ArgReduction op) {
  if (op == ArgReduction::argmax) return {nullptr, find<T>, before<true, T>, update<true, T>};
  return {nullptr, find<T>, before<false, T>, update<false, T>};
}

ArgLoops find_arg_parts(ArgReduction op, DType dtype) {
  return with_native(dtype, [op]<class T>() { return parts<T>(op); });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_arg_parts);
ArgLoops arg_loops(ArgReduction op, DType dtype) {
  ArgLoops parts = SHMAP_BEST(find_arg_parts)(op, dtype);
  parts.extreme = run_kernel(op == ArgReduction::argmax ? Reduction::max : Reduction::min, dtype);
  return parts;
}
}  // namespace shmap::cpu
#endif
