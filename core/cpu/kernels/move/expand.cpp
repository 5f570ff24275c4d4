#include "core/cpu/kernels/move/expand.h"

#include "core/base/word_type.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/move/expand.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// Expands to rows of a constant length, so that each row takes a few stores.
template <class T, int cols>
void expand_fixed(const T* a, T* o, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r, o += cols) {
    const T value = a[r];
    for (int c = 0; c < cols; ++c) o[c] = value;
  }
}

template <class T>
void expand(const void* in, void* out, std::int64_t rows, std::int64_t cols) {
  const T* a = static_cast<const T*>(in);
  T* o = static_cast<T*>(out);
  switch (cols) {
    case 2:
      return expand_fixed<T, 2>(a, o, rows);
    case 4:
      return expand_fixed<T, 4>(a, o, rows);
    case 8:
      return expand_fixed<T, 8>(a, o, rows);
    case 16:
      return expand_fixed<T, 16>(a, o, rows);
    default:
      break;
  }
  for (std::int64_t r = 0; r < rows; ++r, o += cols) {
    const T value = a[r];
    SHMAP_INDEPENDENT
    for (std::int64_t c = 0; c < cols; ++c) o[c] = value;
  }
}

ExpandFn find_expand(int itemsize) {
  return with_word(itemsize, []<class T>() -> ExpandFn { return expand<T>; });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_expand);
ExpandFn expand_kernel(int itemsize) { return SHMAP_BEST(find_expand)(itemsize); }
}  // namespace shmap::cpu
#endif
