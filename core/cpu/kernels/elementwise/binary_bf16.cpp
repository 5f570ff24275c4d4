// Arithmetic of bf16 without a detour through blocks of f32: each result is computed in f32 and
// rounded once.
#include <cstdint>
#include <cstring>

#include "core/cpu/kernels/elementwise/binary_lookup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/elementwise/binary_bf16.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/vector/bf16-inl.h"
#include "core/cpu/kernels/vector/extremes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;
using V = hn::Vec<WideTag>;
constexpr std::int64_t kLanes = hn::MaxLanes(WideTag{});

struct Add {
  static HWY_INLINE V run(V a, V b) { return hn::Add(a, b); }
};
struct Sub {
  static HWY_INLINE V run(V a, V b) { return hn::Sub(a, b); }
};
struct Mul {
  static HWY_INLINE V run(V a, V b) { return hn::Mul(a, b); }
};
struct Div {
  static HWY_INLINE V run(V a, V b) { return hn::Div(a, b); }
};
struct Max {
  static HWY_INLINE V run(V a, V b) { return larger(a, b); }
};
struct Min {
  static HWY_INLINE V run(V a, V b) { return smaller(a, b); }
};

// An operand: one value for all elements, or an array.
template <bool scalar>
struct Operand {
  const std::uint16_t* at;
  V value;
  explicit HWY_INLINE Operand(const void* p) : at(static_cast<const std::uint16_t*>(p)) {
    value = scalar ? widened_bf16(hn::Set(NarrowTag{}, *at)) : hn::Zero(WideTag{});
  }
  HWY_INLINE V load(std::int64_t i) const {
    if constexpr (scalar)
      return value;
    else
      return widened_bf16(hn::LoadU(NarrowTag{}, at + i));
  }
  HWY_INLINE V load_some(std::int64_t i, std::size_t count) const {
    if constexpr (scalar) {
      return value;
    } else {
      std::uint16_t some[kLanes] = {};
      std::memcpy(some, at + i, count * sizeof(some[0]));
      return widened_bf16(hn::LoadU(NarrowTag{}, some));
    }
  }
};

template <class Op, bool a_scalar, bool b_scalar>
void map(const void* a, const void* b, void* out, std::int64_t n) {
  const Operand<a_scalar> x(a);
  const Operand<b_scalar> y(b);
  auto* const o = static_cast<std::uint16_t*>(out);
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const V first = Op::run(x.load(i), y.load(i));
    const V second = Op::run(x.load(i + kLanes), y.load(i + kLanes));
    hn::StoreU(narrowed_bf16(first), NarrowTag{}, o + i);
    hn::StoreU(narrowed_bf16(second), NarrowTag{}, o + i + kLanes);
  }
  for (; i < n; i += kLanes) {
    const auto count = static_cast<std::size_t>(n - i < kLanes ? n - i : kLanes);
    std::uint16_t some[kLanes];
    const V result = Op::run(x.load_some(i, count), y.load_some(i, count));
    hn::StoreU(narrowed_bf16(result), NarrowTag{}, some);
    std::memcpy(o + i, some, count * sizeof(some[0]));
  }
}

template <class Op>
void map_binary_bf16(const void* a, bool a_scalar, const void* b, bool b_scalar, void* out,
                     std::int64_t n) {
  if (n <= 0) return;
  if (a_scalar && b_scalar) return map<Op, true, true>(a, b, out, n);
  if (a_scalar) return map<Op, true, false>(a, b, out, n);
  if (b_scalar) return map<Op, false, true>(a, b, out, n);
  map<Op, false, false>(a, b, out, n);
}
#endif

BinaryFn find_binary_bf16(BinaryOp op) {
#if SHMAP_VECTORS
  switch (op) {
    case BinaryOp::add:
      return map_binary_bf16<Add>;
    case BinaryOp::sub:
      return map_binary_bf16<Sub>;
    case BinaryOp::mul:
      return map_binary_bf16<Mul>;
    case BinaryOp::div:
      return map_binary_bf16<Div>;
    case BinaryOp::max:
      return map_binary_bf16<Max>;
    case BinaryOp::min:
      return map_binary_bf16<Min>;
    default:
      break;
  }
#endif
  (void)op;
  return nullptr;
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_binary_bf16);
BinaryFn binary_bf16_kernel(BinaryOp op) { return SHMAP_BEST(find_binary_bf16)(op); }
}  // namespace shmap::cpu
#endif
