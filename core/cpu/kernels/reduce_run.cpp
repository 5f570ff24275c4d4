// Contiguous runs to one element each.
#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "core/cpu/kernels/reduce_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/reduce_run.cpp"
#include "core/cpu/kernels/targets-inl.h"
//
#include "core/cpu/kernels/reduce_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

template <class Op, class T>
void run(const void* in, std::int64_t n, void* out) {
  *static_cast<T*>(out) = reduce_run<Op>(static_cast<const T*>(in), n);
}

// A short row is over before vectors along it pay: kAbreast rows are turned to stand side by side.
// The order in each is that of fold.
template <class Op, class T>
void run_rows(const void* in, std::int64_t rows, std::int64_t n, void* out) {
  constexpr int kAbreast = 64 / sizeof(T) < 16 ? 16 : 64 / sizeof(T);
  const T* p = static_cast<const T*>(in);
  T* o = static_cast<T*>(out);
  alignas(64) T lanes[64][kAbreast];
  std::int64_t row = 0;
  for (; row + kAbreast <= rows; row += kAbreast, p += kAbreast * n) {
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

template <class T>
RunKernels find(ReduceOp op) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    switch (op) {
      case ReduceOp::sum:
        return kernels_of<Sum, U>();
      case ReduceOp::prod:
        return kernels_of<Prod, U>();
      case ReduceOp::any:
        return kernels_of<Or, U>();
      case ReduceOp::all:
        return kernels_of<And, U>();
      case ReduceOp::xor_:
        return kernels_of<Xor, U>();
      default:
        break;
    }
  }
  switch (op) {
    case ReduceOp::sum:
      return kernels_of<Sum, T>();
    case ReduceOp::prod:
      return kernels_of<Prod, T>();
    case ReduceOp::max:
      return kernels_of<Max, T>();
    case ReduceOp::min:
      return kernels_of<Min, T>();
    default:
      return {};
  }
}

RunKernels find_kernels(ReduceOp op, DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return op == ReduceOp::sum || op == ReduceOp::prod ? RunKernels() : find<std::uint8_t>(op);
    case DType::i8:
      return find<std::int8_t>(op);
    case DType::i16:
      return find<std::int16_t>(op);
    case DType::i32:
      return find<std::int32_t>(op);
    case DType::i64:
      return find<std::int64_t>(op);
    case DType::u8:
      return find<std::uint8_t>(op);
    case DType::u16:
      return find<std::uint16_t>(op);
    case DType::u32:
      return find<std::uint32_t>(op);
    case DType::u64:
      return find<std::uint64_t>(op);
    case DType::f32:
      return find<float>(op);
    case DType::f64:
      return find<double>(op);
    default:
      return {};
  }
}

RunFn find_run(ReduceOp op, DType dtype) { return find_kernels(op, dtype).run; }
RowsFn find_rows(ReduceOp op, DType dtype) { return find_kernels(op, dtype).rows; }

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_run);
SHMAP_KERNELS(find_rows);
RunFn run_kernel(ReduceOp op, DType dtype) { return SHMAP_BEST(find_run)(op, dtype); }
RowsFn rows_kernel(ReduceOp op, DType dtype) { return SHMAP_BEST(find_rows)(op, dtype); }
}  // namespace shmap::cpu
#endif
