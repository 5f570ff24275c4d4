// The vectors on which chains compute, how they are loaded and stored, and the operations on them
// that Highway does not have, for chain.cpp.
//
// Included after exp-inl.h for f32 and reduce_ops-inl.h, once for each instruction set.
#include "core/cpu/kernels/vector/short_cast-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Tag<T>>;
using D = Tag<float>;
using V = hn::Vec<D>;
constexpr std::int64_t kStep = hn::MaxLanes(D{});  // all dtypes of chains have 4 bytes
constexpr std::int64_t kGroup = 8 * kStep;         // elements that are in registers at once

// As the kernel of exp computes it (elementwise/unary_math-inl.h).
HWY_INLINE V exponential(V x) {
#if SHMAP_VECTOR_MATH
  return exp_op::run(x);
#else
  alignas(64) float lanes[kStep];
  hn::Store(x, D{}, lanes);
  for (float& lane : lanes) lane = std::exp(lane);
  return hn::Load(D{}, lanes);
#endif
}

using U = hn::RebindToUnsigned<D>;
using Half = hn::Rebind<std::uint16_t, D>;
HWY_INLINE V widened(hn::Vec<Half> x) {
  return hn::BitCast(D{}, hn::ShiftLeft<16>(hn::PromoteTo(U{}, x)));
}
HWY_INLINE hn::Vec<Half> upper_half(V x) {
  const hn::RebindToSigned<D> d;  // the bits are below 2^16, so that nothing saturates
  return hn::DemoteTo(Half{}, hn::BitCast(d, hn::ShiftRight<16>(hn::BitCast(U{}, x))));
}
// Rounds to the nearest bf16 value, ties to even; a NaN becomes a quiet NaN.
HWY_INLINE V to_bf16(V x) {
  const U u;
  const auto f = hn::BitCast(u, x);
  const auto odd = hn::And(hn::ShiftRight<16>(f), hn::Set(u, 1));
  const auto near = hn::BitCast(D{}, hn::Add(hn::Add(f, hn::Set(u, 0x7fff)), odd));
  const auto quiet = hn::BitCast(D{}, hn::Or(f, hn::Set(u, 0x400000)));
  const auto bits = hn::BitCast(u, hn::IfThenElse(hn::IsNaN(x), quiet, near));
  return hn::BitCast(D{}, hn::And(bits, hn::Set(u, 0xffff0000u)));
}
// Does the same as to_bf16() if all NaNs are quiet NaNs of bf16, which stay unchanged.
HWY_INLINE V quiet_to_bf16(V x) {
  const U u;
  const auto f = hn::BitCast(u, x);
  const auto odd = hn::TestBit(f, hn::Set(u, 0x10000));
  const auto half = hn::IfThenElse(odd, hn::Set(u, 0x8000), hn::Set(u, 0x7fff));
  return hn::BitCast(D{}, hn::And(hn::Add(f, half), hn::Set(u, 0xffff0000u)));
}

// The bf16 values of the elements of a, then of those of b, which are rounded to bf16 already.
using Halves = hn::RepartitionToNarrow<U>;
HWY_INLINE hn::Vec<Halves> upper_halves(V a, V b) {
  const Halves d;
  return hn::ConcatOdd(d, hn::BitCast(d, b), hn::BitCast(d, a));
}

// Whether nearest_halves() may be called: the processor has an instruction for it.
HWY_INLINE bool rounds_to_halves() {
#if HWY_TARGET == HWY_AVX3
  static const bool does = __builtin_cpu_supports("avx512bf16");
  return does;
#else
  return false;
#endif
}
// Does the same as upper_halves() of the values that to_bf16() gives, if none is subnormal: for the
// instruction these are zeros. (It is written as assembly since the other operations here must not
// be compiled for processors that have it.)
HWY_INLINE hn::Vec<Halves> nearest_halves(V a, V b) {
#if HWY_TARGET == HWY_AVX3
  __m512i both;
  asm("vcvtne2ps2bf16 %[a], %[b], %[both]" : [both] "=v"(both) : [a] "v"(a.raw), [b] "v"(b.raw));
  return hn::Vec<Halves>{both};
#else
  return upper_halves(to_bf16(a), to_bf16(b));
#endif
}
// Whether elements of the eight vectors are subnormal; false where nearest_halves() takes these.
HWY_INLINE bool any_subnormal(V a0, V a1, V a2, V a3, V a4, V a5, V a6, V a7) {
#if HWY_TARGET == HWY_AVX3
  constexpr int subnormal = 0x20;
  const auto of = [](V a, V b) HWY_ATTR {
    return static_cast<unsigned>(_mm512_fpclass_ps_mask(a.raw, subnormal)) |
           static_cast<unsigned>(_mm512_fpclass_ps_mask(b.raw, subnormal));
  };
  return (of(a0, a1) | of(a2, a3) | of(a4, a5) | of(a6, a7)) != 0;
#else
  (void)a0, (void)a1, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7;
  return false;
#endif
}

// Operations of i32 and u32. The shifts of AVX2 and AVX-512 by amounts of 32 and more give what the
// operations want: 0, or copies of the sign where the shift is arithmetic.
template <class T>
struct Integers {
  using X = Vector<T>;
  using Unsigned = Tag<std::uint32_t>;
  using Signed = Tag<std::int32_t>;
  static HWY_INLINE X shift_left(X a, X b) {
    const Unsigned u;
    return hn::BitCast(Tag<T>{}, hn::Shl(hn::BitCast(u, a), hn::BitCast(u, b)));
  }
  static HWY_INLINE X shift_right_logical(X a, X b) {
    const Unsigned u;
    return hn::BitCast(Tag<T>{}, hn::Shr(hn::BitCast(u, a), hn::BitCast(u, b)));
  }
  static HWY_INLINE X shift_right_arithmetic(X a, X b) {
    const Signed s;
    return hn::BitCast(Tag<T>{}, hn::Shr(hn::BitCast(s, a), hn::BitCast(s, b)));
  }
  static HWY_INLINE X neg(X a) { return hn::Sub(hn::Zero(Tag<T>{}), a); }
  static HWY_INLINE X abs(X a) {
    if constexpr (std::is_signed_v<T>)
      return hn::Abs(a);
    else
      return a;
  }
};

// Division by the constant of a ChainDivisor.
template <class T>
class Divides {
  using X = Vector<T>;

 public:
  explicit HWY_INLINE Divides(const void* constant) {
    const auto& by = *static_cast<const ChainDivisor*>(constant);
    const Tag<T> d;
    factor_ = hn::Set(d, static_cast<T>(by.factor));
    by_ = hn::Set(d, static_cast<T>(by.by));
    first_ = by.first, second_ = by.second;
  }
  HWY_INLINE X quotient(X a) const {
    const X high = upper_product(a);
    if constexpr (std::is_signed_v<T>) {
      const X sign = hn::Set(Tag<T>{}, static_cast<T>(second_));
      const X q = hn::Sub(hn::ShiftRightSame(hn::Add(high, a), first_), hn::ShiftRight<31>(a));
      return hn::Sub(hn::Xor(q, sign), sign);
    } else {
      return hn::ShiftRightSame(hn::Add(high, hn::ShiftRightSame(hn::Sub(a, high), first_)),
                                second_);
    }
  }
  HWY_INLINE X remainder(X a) const { return hn::Sub(a, hn::Mul(quotient(a), by_)); }

 private:
  // The upper halves of the products of 32 bits.
  HWY_INLINE X upper_product(X a) const {
    const Tag<T> d;
    const hn::Repartition<std::uint64_t, Tag<T>> wide;
    const X odd = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a)));
    const auto evens = hn::BitCast(wide, hn::MulEven(a, factor_));
    return hn::OddEven(hn::BitCast(d, hn::MulEven(odd, factor_)),
                       hn::BitCast(d, hn::ShiftRight<32>(evens)));
  }
  X factor_, by_;
  int first_, second_;
};

// The type in memory of a chain's elements of dtype T: T or, where `half`, bf16.
template <class T>
struct Source {
  const void* at;
  bool half;
  HWY_INLINE Vector<T> load(std::int64_t i) const {
    if constexpr (std::is_same_v<T, float>)
      if (half) return widened(hn::LoadU(Half{}, static_cast<const std::uint16_t*>(at) + i));
    return hn::LoadU(Tag<T>{}, static_cast<const T*>(at) + i);
  }
  HWY_INLINE Vector<T> load_some(std::int64_t i, std::size_t m) const {
    if constexpr (std::is_same_v<T, float>)
      if (half) {
        std::uint16_t some[kStep] = {};
        std::memcpy(some, static_cast<const std::uint16_t*>(at) + i, m * sizeof(some[0]));
        return widened(hn::LoadU(Half{}, some));
      }
    const Tag<T> d;
    return hn::MaskedLoad(hn::FirstN(d, m), d, static_cast<const T*>(at) + i);
  }
};
// Where the elements are stored, and how they are narrowed: `none`, a code that ends_chain(), or
// `to_bf16` where they are rounded to bf16 and narrowed in one step.
template <class T>
struct Destination {
  void* at;
  ChainCode narrows;
  HWY_INLINE void store(Vector<T> x, std::int64_t i) const {
    if constexpr (std::is_same_v<T, float>) {
      if (narrows == ChainCode::narrow)
        return hn::StoreU(upper_half(x), Half{}, static_cast<std::uint16_t*>(at) + i);
      if (narrows == ChainCode::to_bf16)
        return hn::StoreU(upper_half(to_bf16(x)), Half{}, static_cast<std::uint16_t*>(at) + i);
      if (narrows == ChainCode::narrow_i8) return store_short<std::int8_t>(x, i);
      if (narrows == ChainCode::narrow_u8) return store_short<std::uint8_t>(x, i);
    }
    hn::StoreU(x, Tag<T>{}, static_cast<T*>(at) + i);
  }
  HWY_INLINE void store_some(Vector<T> x, std::int64_t i, std::size_t m) const {
    if (narrows == ChainCode::none)
      return hn::BlendedStore(x, hn::FirstN(Tag<T>{}, m), Tag<T>{}, static_cast<T*>(at) + i);
    alignas(64) std::byte some[sizeof(std::uint16_t) * kStep];
    Destination{some, narrows}.store(x, 0);
    const bool to_half = narrows == ChainCode::narrow || narrows == ChainCode::to_bf16;
    const std::size_t size = to_half ? sizeof(std::uint16_t) : 1;
    std::memcpy(static_cast<std::byte*>(at) + i * static_cast<std::int64_t>(size), some, m * size);
  }

 private:
  template <class To>
  HWY_INLINE void store_short(V x, std::int64_t i) const {
    hn::StoreU(to_short<To>(D{}, x), hn::Rebind<To, D>{}, static_cast<To*>(at) + i);
  }
};

// Two vectors of f32 from the 2 * kStep bf16 values at `at`: the values with even indices, and
// those with odd indices. This takes one operation per vector; widened() takes two.
struct Pair {
  V even, odd;
};
HWY_INLINE Pair load_pair(const std::uint16_t* at) {
  const U u;
  const auto both = hn::BitCast(u, hn::LoadU(hn::RepartitionToNarrow<U>{}, at));
  return {hn::BitCast(D{}, hn::ShiftLeft<16>(both)),
          hn::BitCast(D{}, hn::And(both, hn::Set(u, 0xffff0000u)))};
}
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
