// Reduces contiguous runs to one element each.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/base/element_type.h"
#include "core/base/reduction_domain.h"
#include "core/cpu/kernels/reduce/reduce_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/reduce/reduce_run.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/reduce/reduce_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

template <class Op, class T>
void run(const void* in, std::int64_t n, void* out) {
  *static_cast<T*>(out) = reduce_run<Op>(static_cast<const T*>(in), n);
}

// Rows that are too short to be reduced as vectors are transposed and reduced kAbreast rows at a
// time, a row in each lane. The order of operations within each row is that of fold.
template <class Op, class T>
void run_rows(const void* in, std::int64_t rows, std::int64_t n, void* out) {
  constexpr std::int64_t kShort = short_row(static_cast<std::int64_t>(sizeof(T)));
  constexpr int kAbreast = 64 / sizeof(T) < 16 ? 16 : 64 / sizeof(T);
  const T* p = static_cast<const T*>(in);
  T* o = static_cast<T*>(out);
  alignas(64) T lanes[kShort][kAbreast];
  std::int64_t row = 0;
  for (; n < kShort && row + kAbreast <= rows; row += kAbreast, p += kAbreast * n) {
    for (std::int64_t j = 0; j < n; ++j)
      for (int r = 0; r < kAbreast; ++r) lanes[j][r] = p[r * n + j];
    for (std::int64_t m = n; m > 1;) {
      const auto half = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(m)) / 2);
      for (std::int64_t j = 0; j + half < m; ++j)
        for (int r = 0; r < kAbreast; ++r) lanes[j][r] = Op::run(lanes[j][r], lanes[j + half][r]);
      m = half;
    }
    for (int r = 0; r < kAbreast; ++r) o[row + r] = lanes[0][r];
  }
  for (; row < rows; ++row, p += n) o[row] = reduce_run<Op>(p, n);
}

struct RunKernels {
  RunFn run = nullptr;
  RowsFn rows = nullptr;
};
template <class Op, class T>
constexpr RunKernels kernels_of() {
  return {run<Op, T>, run_rows<Op, T>};
}

RunKernels find_kernels(Reduction op, DType dtype) {
  if (!in_domain(dtype, domain_of(op))) return {};
  return with_native(dtype, [op]<class T>() {
    return with_reduction<T>(op, []<class Op, class U>() { return kernels_of<Op, U>(); });
  });
}

RunFn find_run(Reduction op, DType dtype) { return find_kernels(op, dtype).run; }
RowsFn find_rows(Reduction op, DType dtype) { return find_kernels(op, dtype).rows; }

void write_identity_of(Reduction op, DType dtype, void* out) {
  with_native(dtype, [&]<class T>() {
    return with_reduction<T>(op, [&]<class Op, class U>() {
      const T value = Op::template identity<T>;
      const T stored = dtype == DType::bool_ ? static_cast<T>(value != 0) : value;
      std::memcpy(out, &stored, sizeof(T));
      return true;
    });
  });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_run);
SHMAP_KERNELS(find_rows);
SHMAP_KERNELS(write_identity_of);
RunFn run_kernel(Reduction op, DType dtype) { return SHMAP_BEST(find_run)(op, dtype); }
RowsFn rows_kernel(Reduction op, DType dtype) { return SHMAP_BEST(find_rows)(op, dtype); }
void write_identity(Reduction op, DType dtype, void* out) {
  SHMAP_BEST(write_identity_of)(op, dtype, out);
}
}  // namespace shmap::cpu
#endif
