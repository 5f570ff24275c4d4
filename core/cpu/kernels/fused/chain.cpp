#include "core/cpu/kernels/fused/chain.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/base/element_type.h"
#include "core/cpu/kernels/reduce/reduce_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/fused/chain.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/reduce/reduce_ops-inl.h"
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

// Treat NaNs as the kernels of two operands do: hn::Max returns b if b is a NaN; a NaN in a is
// tested for.
HWY_INLINE V larger(V a, V b) { return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b)); }
HWY_INLINE V smaller(V a, V b) { return hn::IfThenElse(hn::IsNaN(a), a, hn::Min(a, b)); }

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
// Where the elements are stored, and how they are narrowed: `none`, or a code that ends_chain().
template <class T>
struct Destination {
  void* at;
  ChainCode narrows;
  HWY_INLINE void store(Vector<T> x, std::int64_t i) const {
    if constexpr (std::is_same_v<T, float>) {
      if (narrows == ChainCode::narrow)
        return hn::StoreU(upper_half(x), Half{}, static_cast<std::uint16_t*>(at) + i);
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
    const std::size_t size = narrows == ChainCode::narrow ? sizeof(std::uint16_t) : 1;
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

// The order of a group's elements in its eight vectors: the order in memory, or pairs of vectors as
// load_pair makes them. Pairs are used only if no operation reads another array.
enum class Lanes : std::uint8_t { in_order, in_pairs };
// In bf16 values: a cache line, and how far ahead pairs are prefetched. (Measured on Zen 5: a sum
// of squares took 178 us without prefetches, 160 us with them; twice and four times as far: 163,
// 166.)
constexpr std::int64_t kLine = 32, kAhead = 512;

constexpr int packed(ChainCode code, ChainForm form) {
  return 8 * static_cast<int>(code) + static_cast<int>(form);
}

// Stores the eight vectors of a group, past the caches if `around`.
template <class T, bool around>
struct Stores {
  using X = Vector<T>;
  Destination<T> out;
  HWY_INLINE void group(std::int64_t i, X a0, X a1, X a2, X a3, X a4, X a5, X a6, X a7) {
    const auto put = [&](X a, std::int64_t k) HWY_ATTR {
      if constexpr (around)
        hn::Stream(a, Tag<T>{}, static_cast<T*>(out.at) + i + k * kStep);
      else
        hn::StoreU(a, Tag<T>{}, static_cast<T*>(out.at) + i + k * kStep);
    };
    const auto narrow = [&](X a, std::int64_t k) HWY_ATTR { out.store(a, i + k * kStep); };
    if (around || out.narrows == ChainCode::none) {
      put(a0, 0), put(a1, 1), put(a2, 2), put(a3, 3);
      put(a4, 4), put(a5, 5), put(a6, 6), put(a7, 7);
    } else {
      narrow(a0, 0), narrow(a1, 1), narrow(a2, 2), narrow(a3, 3);
      narrow(a4, 4), narrow(a5, 5), narrow(a6, 6), narrow(a7, 7);
    }
  }
};

// Reduces in the order of reduce_floats, in kLanes running results. Vector k of a group is combined
// with the results from k * kStep on.
template <class Op>
struct Folds {
  static constexpr int kVectors = static_cast<int>(kLanes<float> / kStep);
  static_assert(kVectors == 4 || kVectors == 8);
  V s0, s1, s2, s3, s4, s5, s6, s7;  // s4 to s7 are used with eight vectors only
  HWY_INLINE explicit Folds(float neutral) {
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = hn::Set(D{}, neutral);
  }
  HWY_INLINE void group(std::int64_t, V a0, V a1, V a2, V a3, V a4, V a5, V a6, V a7) {
    s0 = Op::vector(s0, a0), s1 = Op::vector(s1, a1);
    s2 = Op::vector(s2, a2), s3 = Op::vector(s3, a3);
    if constexpr (kVectors == 4) {
      s0 = Op::vector(s0, a4), s1 = Op::vector(s1, a5);
      s2 = Op::vector(s2, a6), s3 = Op::vector(s3, a7);
    } else {
      s4 = Op::vector(s4, a4), s5 = Op::vector(s5, a5);
      s6 = Op::vector(s6, a6), s7 = Op::vector(s7, a7);
    }
  }
  HWY_INLINE void one(int k, V a) {
    switch (k % kVectors) {
      case 0:
        s0 = Op::vector(s0, a);
        break;
      case 1:
        s1 = Op::vector(s1, a);
        break;
      case 2:
        s2 = Op::vector(s2, a);
        break;
      case 3:
        s3 = Op::vector(s3, a);
        break;
      case 4:
        s4 = Op::vector(s4, a);
        break;
      case 5:
        s5 = Op::vector(s5, a);
        break;
      case 6:
        s6 = Op::vector(s6, a);
        break;
      default:
        s7 = Op::vector(s7, a);
        break;
    }
  }
  // Returns the same value as total() if the vectors are in pairs. The vectors with odd numbers
  // hold the elements with odd indices, which total() would combine in its last step.
  HWY_INLINE float total_of_pairs() {
    if constexpr (kVectors == 8) {
      s0 = Op::vector(s0, s4), s1 = Op::vector(s1, s5);
      s2 = Op::vector(s2, s6), s3 = Op::vector(s3, s7);
    }
    return Op::run(fold_lanes<Op>(D{}, Op::vector(s0, s2)),
                   fold_lanes<Op>(D{}, Op::vector(s1, s3)));
  }
  HWY_INLINE float total() {
    if constexpr (kVectors == 8) {
      s0 = Op::vector(s0, s4), s1 = Op::vector(s1, s5);
      s2 = Op::vector(s2, s6), s3 = Op::vector(s3, s7);
    }
    return fold_lanes<Op>(D{}, Op::vector(Op::vector(s0, s2), Op::vector(s1, s3)));
  }
};

// Reduces a group of which only `count` elements exist, in pairs; the others become neutral.
template <class Op>
struct SomePairs {
  Folds<Op> folds;
  std::int64_t count;
  HWY_INLINE V some(int k, V a) const {  // replaces the missing elements of vector k
    const std::int64_t here = (count - k / 2 * 2 * kStep + 1 - k % 2) / 2;
    const auto lanes = static_cast<std::size_t>(std::clamp<std::int64_t>(here, 0, kStep));
    return hn::IfThenElse(hn::FirstN(D{}, lanes), a, hn::Set(D{}, static_cast<float>(Op::neutral)));
  }
  HWY_INLINE void group(std::int64_t i, V a0, V a1, V a2, V a3, V a4, V a5, V a6, V a7) {
    folds.group(i, some(0, a0), some(1, a1), some(2, a2), some(3, a3), some(4, a4), some(5, a5),
                some(6, a6), some(7, a7));
  }
};

// Applies an operation to the eight vectors of the group at `i`. kept: kGroup elements where
// operations may keep a value (`keeps`).
#define SHMAP_VALUE(a, k) a
#define SHMAP_VECTOR(a, k) hn::LoadU(d, other + i + k * kStep)
#define SHMAP_SCALAR(a, k) scalar
#define SHMAP_KEPT(a, k) hn::Load(d, kept + k * kStep)
#define SHMAP_EACH(f, left, right)   \
  a0 = f(left(a0, 0), right(a0, 0)); \
  a1 = f(left(a1, 1), right(a1, 1)); \
  a2 = f(left(a2, 2), right(a2, 2)); \
  a3 = f(left(a3, 3), right(a3, 3)); \
  a4 = f(left(a4, 4), right(a4, 4)); \
  a5 = f(left(a5, 5), right(a5, 5)); \
  a6 = f(left(a6, 6), right(a6, 6)); \
  a7 = f(left(a7, 7), right(a7, 7)); \
  break
#define SHMAP_FORMS(code, f)                               \
  case packed(ChainCode::code, ChainForm::vector): {       \
    SHMAP_EACH(f, SHMAP_VALUE, SHMAP_VECTOR);              \
  }                                                        \
  case packed(ChainCode::code, ChainForm::scalar): {       \
    const X scalar = hn::Set(d, *other);                   \
    SHMAP_EACH(f, SHMAP_VALUE, SHMAP_SCALAR);              \
  }                                                        \
  case packed(ChainCode::code, ChainForm::vector_first): { \
    SHMAP_EACH(f, SHMAP_VECTOR, SHMAP_VALUE);              \
  }                                                        \
  case packed(ChainCode::code, ChainForm::scalar_first): { \
    const X scalar = hn::Set(d, *other);                   \
    SHMAP_EACH(f, SHMAP_SCALAR, SHMAP_VALUE);              \
  }                                                        \
  case packed(ChainCode::code, ChainForm::self): {         \
    SHMAP_EACH(f, SHMAP_VALUE, SHMAP_VALUE);               \
  }                                                        \
  case packed(ChainCode::code, ChainForm::kept): {         \
    if constexpr (!keeps) break;                           \
    SHMAP_EACH(f, SHMAP_VALUE, SHMAP_KEPT);                \
  }                                                        \
  case packed(ChainCode::code, ChainForm::kept_first): {   \
    if constexpr (!keeps) break;                           \
    SHMAP_EACH(f, SHMAP_KEPT, SHMAP_VALUE);                \
  }
#define SHMAP_ONE(code, f)                          \
  case packed(ChainCode::code, ChainForm::self): {  \
    a0 = f(a0), a1 = f(a1), a2 = f(a2), a3 = f(a3); \
    a4 = f(a4), a5 = f(a5), a6 = f(a6), a7 = f(a7); \
    break;                                          \
  }
#define SHMAP_SQUARE                                 \
  case packed(ChainCode::square, ChainForm::self): { \
    SHMAP_EACH(hn::Mul, SHMAP_VALUE, SHMAP_VALUE);   \
  }
#define SHMAP_FLOAT_OPS       \
  SHMAP_FORMS(add, hn::Add)   \
  SHMAP_FORMS(sub, hn::Sub)   \
  SHMAP_FORMS(mul, hn::Mul)   \
  SHMAP_FORMS(div, hn::Div)   \
  SHMAP_FORMS(max, larger)    \
  SHMAP_FORMS(min, smaller)   \
  SHMAP_SQUARE                \
  SHMAP_ONE(sqrt, hn::Sqrt)   \
  SHMAP_ONE(neg, hn::Neg)     \
  SHMAP_ONE(abs, hn::Abs)     \
  SHMAP_ONE(floor, hn::Floor) \
  SHMAP_ONE(ceil, hn::Ceil)   \
  SHMAP_ONE(round, hn::Round) \
  SHMAP_ONE(to_bf16, to_bf16) \
  SHMAP_ONE(quiet_to_bf16, quiet_to_bf16)
#define SHMAP_INT_OPS                                                      \
  SHMAP_FORMS(add, hn::Add)                                                \
  SHMAP_FORMS(sub, hn::Sub)                                                \
  SHMAP_FORMS(mul, hn::Mul)                                                \
  SHMAP_FORMS(max, hn::Max)                                                \
  SHMAP_FORMS(min, hn::Min)                                                \
  SHMAP_FORMS(bit_and, hn::And)                                            \
  SHMAP_FORMS(bit_or, hn::Or)                                              \
  SHMAP_FORMS(bit_xor, hn::Xor)                                            \
  SHMAP_FORMS(shift_left, Integers<T>::shift_left)                         \
  SHMAP_FORMS(shift_right_logical, Integers<T>::shift_right_logical)       \
  SHMAP_FORMS(shift_right_arithmetic, Integers<T>::shift_right_arithmetic) \
  SHMAP_SQUARE                                                             \
  SHMAP_ONE(neg, Integers<T>::neg)                                         \
  SHMAP_ONE(abs, Integers<T>::abs)                                         \
  SHMAP_ONE(not_, hn::Not)
#define SHMAP_KEEP                                                          \
  case packed(ChainCode::keep, ChainForm::self): {                          \
    if constexpr (!keeps) break;                                            \
    hn::Store(a0, d, kept), hn::Store(a1, d, kept + kStep);                 \
    hn::Store(a2, d, kept + 2 * kStep), hn::Store(a3, d, kept + 3 * kStep); \
    hn::Store(a4, d, kept + 4 * kStep), hn::Store(a5, d, kept + 5 * kStep); \
    hn::Store(a6, d, kept + 6 * kStep), hn::Store(a7, d, kept + 7 * kStep); \
    break;                                                                  \
  }
template <class T, bool keeps, class X = Vector<T>>
HWY_INLINE void apply(const ChainOp& op, std::int64_t i, T* kept, X& a0, X& a1, X& a2, X& a3, X& a4,
                      X& a5, X& a6, X& a7) {
  const Tag<T> d;
  const T* const other = static_cast<const T*>(op.other);
  if constexpr (std::is_same_v<T, float>) {
    switch (packed(op.code, op.form)) {
      SHMAP_KEEP
      SHMAP_FLOAT_OPS
      default:
        break;
    }
  } else {
    switch (packed(op.code, op.form)) {
      SHMAP_KEEP
      SHMAP_INT_OPS
      default:
        break;
    }
  }
}
#undef SHMAP_KEEP
#undef SHMAP_SQUARE
#undef SHMAP_ONE
#undef SHMAP_FORMS
#undef SHMAP_EACH
#undef SHMAP_KEPT
#undef SHMAP_SCALAR
#undef SHMAP_VECTOR
#undef SHMAP_VALUE

// Runs elements [begin, end), which are whole groups. There is one jump for each operation and
// group.
template <class T, bool keeps, Lanes lanes = Lanes::in_order, class Sink>
void run_groups(const ChainOp* ops, int count, Source<T> in, Sink& to, std::int64_t begin,
                std::int64_t end) {
  Sink sink = to;
  alignas(64) T kept[keeps ? kGroup : 1];
  for (std::int64_t i = begin; i < end; i += kGroup) {
    Vector<T> a0, a1, a2, a3, a4, a5, a6, a7;
    if constexpr (lanes == Lanes::in_pairs) {
      const auto* const at = static_cast<const std::uint16_t*>(in.at) + i;
      for (std::int64_t line = 0; line < kGroup; line += kLine)
        __builtin_prefetch(at + kAhead + line);
      const Pair p0 = load_pair(at), p1 = load_pair(at + 2 * kStep);
      const Pair p2 = load_pair(at + 4 * kStep), p3 = load_pair(at + 6 * kStep);
      a0 = p0.even, a1 = p0.odd, a2 = p1.even, a3 = p1.odd;
      a4 = p2.even, a5 = p2.odd, a6 = p3.even, a7 = p3.odd;
    } else {
      a0 = in.load(i), a1 = in.load(i + kStep);
      a2 = in.load(i + 2 * kStep), a3 = in.load(i + 3 * kStep);
      a4 = in.load(i + 4 * kStep), a5 = in.load(i + 5 * kStep);
      a6 = in.load(i + 6 * kStep), a7 = in.load(i + 7 * kStep);
    }
    for (const ChainOp* op = ops; op != ops + count; ++op)
      apply<T, keeps>(*op, i, kept, a0, a1, a2, a3, a4, a5, a6, a7);
    sink.group(i, a0, a1, a2, a3, a4, a5, a6, a7);
  }
  to = sink;
}

// Runs kVectors vectors at `i`, or the first `m` elements of one vector. Used for the elements of a
// call beyond its whole groups, and for short rows. There is one jump for each operation.
#define SHMAP_FORMS(code, function)                                           \
  case packed(ChainCode::code, ChainForm::vector):                            \
    for (int k = 0; k < kVectors; ++k) a[k] = function(a[k], load(other, k)); \
    break;                                                                    \
  case packed(ChainCode::code, ChainForm::scalar): {                          \
    const X scalar = hn::Set(d, *other);                                      \
    for (int k = 0; k < kVectors; ++k) a[k] = function(a[k], scalar);         \
    break;                                                                    \
  }                                                                           \
  case packed(ChainCode::code, ChainForm::vector_first):                      \
    for (int k = 0; k < kVectors; ++k) a[k] = function(load(other, k), a[k]); \
    break;                                                                    \
  case packed(ChainCode::code, ChainForm::scalar_first): {                    \
    const X scalar = hn::Set(d, *other);                                      \
    for (int k = 0; k < kVectors; ++k) a[k] = function(scalar, a[k]);         \
    break;                                                                    \
  }                                                                           \
  case packed(ChainCode::code, ChainForm::self):                              \
    for (int k = 0; k < kVectors; ++k) a[k] = function(a[k], a[k]);           \
    break;                                                                    \
  case packed(ChainCode::code, ChainForm::kept):                              \
    for (int k = 0; k < kVectors; ++k) a[k] = function(a[k], kept[k]);        \
    break;                                                                    \
  case packed(ChainCode::code, ChainForm::kept_first):                        \
    for (int k = 0; k < kVectors; ++k) a[k] = function(kept[k], a[k]);        \
    break;
#define SHMAP_ONE(code, function)                             \
  case packed(ChainCode::code, ChainForm::self):              \
    for (int k = 0; k < kVectors; ++k) a[k] = function(a[k]); \
    break;
#define SHMAP_SQUARE                                               \
  case packed(ChainCode::square, ChainForm::self):                 \
    for (int k = 0; k < kVectors; ++k) a[k] = hn::Mul(a[k], a[k]); \
    break;
template <class T, int kVectors, bool whole, class X = Vector<T>>
HWY_INLINE void run_vectors(const ChainOp* ops, int count, Source<T> in, std::int64_t i,
                            std::size_t m, X (&a)[kVectors]) {
  const Tag<T> d;
  const auto mask = hn::FirstN(d, m);
  const auto load = [&](const T* from, std::int64_t k) HWY_ATTR {
    if constexpr (whole)
      return hn::LoadU(d, from + i + k * kStep);
    else
      return hn::MaskedLoad(mask, d, from + i);
  };
  X kept[kVectors];
  for (int k = 0; k < kVectors; ++k)
    a[k] = kept[k] = whole ? in.load(i + k * kStep) : in.load_some(i, m);
  for (const ChainOp* op = ops; op != ops + count; ++op) {
    const T* const other = static_cast<const T*>(op->other);
    const int code = packed(op->code, op->form);
    if (op->code == ChainCode::keep) {
      for (int k = 0; k < kVectors; ++k) kept[k] = a[k];
    } else if constexpr (std::is_same_v<T, float>) {
      switch (code) {
        SHMAP_FLOAT_OPS
        default:
          break;
      }
    } else {
      switch (code) {
        SHMAP_INT_OPS
        default:
          break;
      }
    }
  }
}
#undef SHMAP_INT_OPS
#undef SHMAP_FLOAT_OPS
#undef SHMAP_SQUARE
#undef SHMAP_ONE
#undef SHMAP_FORMS

// Calls each(number, position, vector) for the whole vectors from i on, several at a time. Returns
// the position from which less than a vector is left.
template <class T, class Each>
HWY_INLINE std::int64_t run_whole_vectors(const ChainOp* ops, int count, Source<T> in,
                                          std::int64_t i, std::int64_t end, Each each) {
  int n = 0;
  for (; i + 4 * kStep <= end; i += 4 * kStep) {
    Vector<T> a[4];
    run_vectors<T, 4, true>(ops, count, in, i, kStep, a);
    for (int k = 0; k < 4; ++k) each(n++, i + k * kStep, a[k]);
  }
  for (; i + kStep <= end; i += kStep) {
    Vector<T> a[1];
    run_vectors<T, 1, true>(ops, count, in, i, kStep, a);
    each(n++, i, a[0]);
  }
  return i;
}

template <class T>
void run(const ChainOp* ops, int count, const void* from, void* to, bool around, std::int64_t n) {
  const Source<T> in{from, count > 0 && ops[0].code == ChainCode::widen};
  const bool narrows = count > 0 && ends_chain(ops[count - 1].code);
  const Destination<T> out{to, narrows ? ops[count - 1].code : ChainCode::none};
  if (narrows) --count;
  if (in.half) ++ops, --count;
  const std::int64_t whole = n / kGroup * kGroup;
  const bool aligned = reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
  if (around && aligned && !narrows) {
    Stores<T, true> sink{out};
    run_groups<T, true>(ops, count, in, sink, 0, whole);
  } else if (whole > 0) {
    Stores<T, false> sink{out};
    run_groups<T, true>(ops, count, in, sink, 0, whole);
  }
  const std::int64_t i =
      run_whole_vectors<T>(ops, count, in, whole, n,
                           [&](int, std::int64_t at, Vector<T> a) HWY_ATTR { out.store(a, at); });
  if (i == n) return;
  const auto rest = static_cast<std::size_t>(n - i);
  Vector<T> a[1];
  run_vectors<T, 1, false>(ops, count, in, i, rest, a);
  out.store_some(a[0], i, rest);
}

// Reduces a piece of a row, as reduce_floats does.
template <class Op>
float fold_piece(const ChainOp* ops, int count, Source<float> in, std::int64_t begin,
                 std::int64_t n) {
  constexpr auto neutral = static_cast<float>(Op::neutral);
  Folds<Op> folds(neutral);
  const std::int64_t end = begin + n, whole = begin + n / kGroup * kGroup;
  if (begin < whole) run_groups<float, false>(ops, count, in, folds, begin, whole);
  int next = 0;
  const std::int64_t i =
      run_whole_vectors<float>(ops, count, in, whole, end, [&](int k, std::int64_t, V a) HWY_ATTR {
        folds.one(k, a);
        next = k + 1;
      });
  if (i < end) {
    const auto rest = static_cast<std::size_t>(end - i);
    V a[1];
    run_vectors<float, 1, false>(ops, count, in, i, rest, a);
    folds.one(next, hn::IfThenElse(hn::FirstN(D{}, rest), a[0], hn::Set(D{}, neutral)));
  }
  return folds.total();
}

// Does the same as fold_piece for bf16 values that are loaded in pairs.
template <class Op>
float fold_pairs(const ChainOp* ops, int count, Source<float> in, std::int64_t begin,
                 std::int64_t n) {
  Folds<Op> folds(static_cast<float>(Op::neutral));
  const std::int64_t end = begin + n, whole = begin + n / kGroup * kGroup;
  if (begin < whole) run_groups<float, false, Lanes::in_pairs>(ops, count, in, folds, begin, whole);
  if (whole < end) {  // uses a copy that is a whole group
    alignas(64) std::uint16_t rest[kGroup] = {};
    std::memcpy(rest, static_cast<const std::uint16_t*>(in.at) + whole,
                static_cast<std::size_t>(end - whole) * sizeof(rest[0]));
    SomePairs<Op> some{folds, end - whole};
    run_groups<float, false, Lanes::in_pairs>(ops, count, Source<float>{rest, true}, some, 0,
                                              kGroup);
    folds = some.folds;
  }
  return folds.total_of_pairs();
}

bool reads_arrays(const ChainOp* ops, int count) {
  return std::any_of(ops, ops + count, [](const ChainOp& op) {
    return op.form == ChainForm::vector || op.form == ChainForm::vector_first;
  });
}

// Combines the pieces of a long row in a balanced tree, as reduce_kernel does.
template <class Op>
void fold_row(const ChainOp* ops, int count, const void* from, float* out, std::int64_t n) {
  constexpr std::int64_t kPiece = ReduceScratch::kPiece;
  const Source<float> in{from, count > 0 && ops[0].code == ChainCode::widen};
  if (in.half) ++ops, --count;
  // The copy of the last group pays only if there are at least a few groups.
  const bool in_pairs = in.half && n >= 4 * kGroup && !reads_arrays(ops, count);
  const auto fold_some = in_pairs ? fold_pairs<Op> : fold_piece<Op>;
  if (n <= kPiece) {
    *out = fold_some(ops, count, in, 0, n);
    return;
  }
  float sums[64];
  int depth = 0;
  std::uint64_t pieces = 0;
  for (std::int64_t i = 0; i < n; i += kPiece) {
    sums[depth++] = fold_some(ops, count, in, i, std::min(kPiece, n - i));
    for (std::uint64_t bit = ++pieces; bit % 2 == 0; bit /= 2, --depth)
      sums[depth - 2] = Op::run(sums[depth - 2], sums[depth - 1]);
  }
  for (; depth > 1; --depth) sums[depth - 2] = Op::run(sums[depth - 2], sums[depth - 1]);
  *out = sums[0];
}

ChainFoldFn find_fold(Reduction op) {
  switch (op) {
    case Reduction::sum:
      return fold_row<Sum>;
    case Reduction::max:
      return fold_row<Max>;
    default:
      return nullptr;
  }
}

ChainFn find_chain(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return run<float>;
    case DType::i32:
      return run<std::int32_t>;
    case DType::u32:
      return run<std::uint32_t>;
    default:
      return nullptr;
  }
}
#else
ChainFn find_chain(DType) { return nullptr; }
ChainFoldFn find_fold(Reduction) { return nullptr; }
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_chain);
SHMAP_KERNELS(find_fold);
ChainFn chain_kernel(DType dtype) { return SHMAP_BEST(find_chain)(dtype); }
ChainFoldFn chain_fold_kernel(Reduction op) { return SHMAP_BEST(find_fold)(op); }
}  // namespace shmap::cpu
#endif
