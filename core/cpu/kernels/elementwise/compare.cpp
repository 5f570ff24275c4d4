#include "core/cpu/kernels/elementwise/compare.h"

#include <type_traits>

#include "core/base/element_type.h"
#include "core/cpu/kernels/elementwise/half_block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/elementwise/compare.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/elementwise/map_binary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

struct Eq {
  template <class T>
  static std::uint8_t run(T a, T b) {
    return a == b;
  }
};
struct Ne {
  template <class T>
  static std::uint8_t run(T a, T b) {
    return a != b;
  }
};
struct Lt {
  template <class T>
  static std::uint8_t run(T a, T b) {
    return a < b;
  }
};
struct Le {
  template <class T>
  static std::uint8_t run(T a, T b) {
    return a <= b;
  }
};
template <class Op>
struct Swapped {
  template <class T>
  static std::uint8_t run(T a, T b) {
    return Op::run(b, a);
  }
};

template <class T>
BinaryFn find(CompareOp op) {
  using Bits = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                           std::type_identity<T>>::type;
  switch (op) {
    case CompareOp::eq:
      return map_binary<Eq, Bits, std::uint8_t>;
    case CompareOp::ne:
      return map_binary<Ne, Bits, std::uint8_t>;
    case CompareOp::lt:
      return map_binary<Lt, T, std::uint8_t>;
    case CompareOp::le:
      return map_binary<Le, T, std::uint8_t>;
    case CompareOp::gt:
      return map_binary<Swapped<Lt>, T, std::uint8_t>;
    case CompareOp::ge:
      return map_binary<Swapped<Le>, T, std::uint8_t>;
  }
  return nullptr;
}

BinaryFn find_compare(CompareOp op, DType dtype) {
  return with_native(dtype, [op]<class T>() { return find<T>(op); });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
namespace {

template <DType half, CompareOp op>
void half_kernel(const void* a, bool a_scalar, const void* b, bool b_scalar, void* out,
                 std::int64_t n) {
  static const BinaryFn kernel = compare_kernel(op, DType::f32);
  run_half_binary(kernel, half, nullptr, a, a_scalar, b, b_scalar, out, n);
}

template <DType half>
BinaryFn find_half(CompareOp op) {
  switch (op) {
    case CompareOp::eq:
      return half_kernel<half, CompareOp::eq>;
    case CompareOp::ne:
      return half_kernel<half, CompareOp::ne>;
    case CompareOp::lt:
      return half_kernel<half, CompareOp::lt>;
    case CompareOp::le:
      return half_kernel<half, CompareOp::le>;
    case CompareOp::gt:
      return half_kernel<half, CompareOp::gt>;
    case CompareOp::ge:
      return half_kernel<half, CompareOp::ge>;
  }
  return nullptr;
}

}  // namespace

SHMAP_KERNELS(find_compare);
BinaryFn compare_kernel(CompareOp op, DType dtype) {
  if (dtype == DType::f16) return find_half<DType::f16>(op);
  if (dtype == DType::bf16) return find_half<DType::bf16>(op);
  return SHMAP_BEST(find_compare)(op, dtype);
}
}  // namespace shmap::cpu
#endif
