// Contiguous runs to one element.
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

template <class T>
RunFn find(ReduceOp op) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    switch (op) {
      case ReduceOp::sum:
        return run<Sum, U>;
      case ReduceOp::prod:
        return run<Prod, U>;
      case ReduceOp::any:
        return run<Or, U>;
      case ReduceOp::all:
        return run<And, U>;
      case ReduceOp::xor_:
        return run<Xor, U>;
      default:
        break;
    }
  }
  switch (op) {
    case ReduceOp::sum:
      return run<Sum, T>;
    case ReduceOp::prod:
      return run<Prod, T>;
    case ReduceOp::max:
      return run<Max, T>;
    case ReduceOp::min:
      return run<Min, T>;
    default:
      return nullptr;
  }
}

RunFn find_run(ReduceOp op, DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return op == ReduceOp::sum || op == ReduceOp::prod ? nullptr : find<std::uint8_t>(op);
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
      return nullptr;
  }
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_run);
RunFn run_kernel(ReduceOp op, DType dtype) { return SHMAP_BEST(find_run)(op, dtype); }
}  // namespace shmap::cpu
#endif
