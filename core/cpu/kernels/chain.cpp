#include "core/cpu/kernels/chain.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/chain.cpp"
#include "core/cpu/kernels/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr std::int64_t kStep = hn::MaxLanes(D{});
constexpr std::int64_t kGroup = 8 * kStep;  // elements in registers at once

// As the kernels of two operands have them: a NaN in b fails the comparison, one in a is asked for.
HWY_INLINE V larger(V a, V b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Gt(a, b), a, b));
}
HWY_INLINE V smaller(V a, V b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Lt(a, b), a, b));
}

using U = hn::RebindToUnsigned<D>;
using Half = hn::Rebind<std::uint16_t, D>;
HWY_INLINE V widened(hn::Vec<Half> x) {
  return hn::BitCast(D{}, hn::ShiftLeft<16>(hn::PromoteTo(U{}, x)));
}
HWY_INLINE hn::Vec<Half> upper_half(V x) {
  const hn::RebindToSigned<D> d;  // below 2^16: nothing saturates
  return hn::DemoteTo(Half{}, hn::BitCast(d, hn::ShiftRight<16>(hn::BitCast(U{}, x))));
}
// To even; a NaN becomes a quiet one.
HWY_INLINE V rounded(V x) {
  const U u;
  const auto f = hn::BitCast(u, x);
  const auto odd = hn::And(hn::ShiftRight<16>(f), hn::Set(u, 1));
  const auto near = hn::BitCast(D{}, hn::Add(hn::Add(f, hn::Set(u, 0x7fff)), odd));
  const auto quiet = hn::BitCast(D{}, hn::Or(f, hn::Set(u, 0x400000)));
  const auto bits = hn::BitCast(u, hn::IfThenElse(hn::IsNaN(x), quiet, near));
  return hn::BitCast(D{}, hn::And(bits, hn::Set(u, 0xffff0000u)));
}

// What a chain reads and writes: f32, or bf16.
struct Source {
  const void* at;
  bool half;
  HWY_INLINE V load(std::int64_t i) const {
    if (half) return widened(hn::LoadU(Half{}, static_cast<const std::uint16_t*>(at) + i));
    return hn::LoadU(D{}, static_cast<const float*>(at) + i);
  }
  HWY_INLINE V load_some(std::int64_t i, std::size_t m) const {
    if (!half) return hn::MaskedLoad(hn::FirstN(D{}, m), D{}, static_cast<const float*>(at) + i);
    std::uint16_t some[hn::MaxLanes(D{})] = {};
    std::memcpy(some, static_cast<const std::uint16_t*>(at) + i, m * sizeof(some[0]));
    return widened(hn::LoadU(Half{}, some));
  }
};
struct Target {
  void* at;
  bool half;
  HWY_INLINE void store(V x, std::int64_t i) const {
    if (half) return hn::StoreU(upper_half(x), Half{}, static_cast<std::uint16_t*>(at) + i);
    hn::StoreU(x, D{}, static_cast<float*>(at) + i);
  }
  HWY_INLINE void store_some(V x, std::int64_t i, std::size_t m) const {
    if (!half) return hn::BlendedStore(x, hn::FirstN(D{}, m), D{}, static_cast<float*>(at) + i);
    std::uint16_t some[hn::MaxLanes(D{})];
    hn::StoreU(upper_half(x), Half{}, some);
    std::memcpy(static_cast<std::uint16_t*>(at) + i, some, m * sizeof(some[0]));
  }
};

constexpr int packed(ChainCode code, ChainForm form) {
  return 8 * static_cast<int>(code) + static_cast<int>(form);
}

// n is a multiple of kGroup. Each case handles the eight vectors of a group, one after another, so
// that there is one jump an operation and group.
template <bool around>
void run_groups(const ChainOp* ops, int count, Source in, Target out, std::int64_t n) {
  const D d;
  for (std::int64_t i = 0; i < n; i += kGroup) {
    V a0 = in.load(i), a1 = in.load(i + kStep);
    V a2 = in.load(i + 2 * kStep), a3 = in.load(i + 3 * kStep);
    V a4 = in.load(i + 4 * kStep), a5 = in.load(i + 5 * kStep);
    V a6 = in.load(i + 6 * kStep), a7 = in.load(i + 7 * kStep);
    for (const ChainOp* op = ops; op != ops + count; ++op) {
      const float* const other = op->other;
#define SHMAP_VALUE(a, k) a
#define SHMAP_VECTOR(a, k) hn::LoadU(d, other + i + k * kStep)
#define SHMAP_SCALAR(a, k) scalar
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
    const V scalar = hn::Set(d, *other);                   \
    SHMAP_EACH(f, SHMAP_VALUE, SHMAP_SCALAR);              \
  }                                                        \
  case packed(ChainCode::code, ChainForm::vector_first): { \
    SHMAP_EACH(f, SHMAP_VECTOR, SHMAP_VALUE);              \
  }                                                        \
  case packed(ChainCode::code, ChainForm::scalar_first): { \
    const V scalar = hn::Set(d, *other);                   \
    SHMAP_EACH(f, SHMAP_SCALAR, SHMAP_VALUE);              \
  }                                                        \
  case packed(ChainCode::code, ChainForm::self): {         \
    SHMAP_EACH(f, SHMAP_VALUE, SHMAP_VALUE);               \
  }
#define SHMAP_ONE(code, f)                          \
  case packed(ChainCode::code, ChainForm::self): {  \
    a0 = f(a0), a1 = f(a1), a2 = f(a2), a3 = f(a3); \
    a4 = f(a4), a5 = f(a5), a6 = f(a6), a7 = f(a7); \
    break;                                          \
  }
      switch (packed(op->code, op->form)) {
        SHMAP_FORMS(add, hn::Add)
        SHMAP_FORMS(sub, hn::Sub)
        SHMAP_FORMS(mul, hn::Mul)
        SHMAP_FORMS(div, hn::Div)
        SHMAP_FORMS(max, larger)
        SHMAP_FORMS(min, smaller)
        case packed(ChainCode::square, ChainForm::self): {
          SHMAP_EACH(hn::Mul, SHMAP_VALUE, SHMAP_VALUE);
        }
          SHMAP_ONE(sqrt, hn::Sqrt)
          SHMAP_ONE(neg, hn::Neg)
          SHMAP_ONE(abs, hn::Abs)
          SHMAP_ONE(round, rounded)
        default:
          break;
      }
#undef SHMAP_ONE
#undef SHMAP_FORMS
#undef SHMAP_EACH
#undef SHMAP_SCALAR
#undef SHMAP_VECTOR
#undef SHMAP_VALUE
    }
    const auto put = [&](V a, std::int64_t k) HWY_ATTR {
      if constexpr (around)
        hn::Stream(a, d, static_cast<float*>(out.at) + i + k * kStep);
      else
        out.store(a, i + k * kStep);
    };
    put(a0, 0), put(a1, 1), put(a2, 2), put(a3, 3);
    put(a4, 4), put(a5, 5), put(a6, 6), put(a7, 7);
  }
}

// One vector at `i`, or its first `m` elements: the switch costs more than the arithmetic, which
// only what is left of a call's groups has to bear.
template <bool whole>
HWY_INLINE void run_vector(const ChainOp* ops, int count, Source in, Target out, std::int64_t i,
                           std::size_t m) {
  const D d;
  const auto mask = hn::FirstN(d, m);
  const auto load = [&](const float* from) HWY_ATTR {
    if constexpr (whole)
      return hn::LoadU(d, from + i);
    else
      return hn::MaskedLoad(mask, d, from + i);
  };
  V a = whole ? in.load(i) : in.load_some(i, m);
  for (const ChainOp* op = ops; op != ops + count; ++op) {
    V left = a, right = a;
    switch (op->form) {
      case ChainForm::vector:
        right = load(op->other);
        break;
      case ChainForm::scalar:
        right = hn::Set(d, *op->other);
        break;
      case ChainForm::vector_first:
        left = load(op->other);
        break;
      case ChainForm::scalar_first:
        left = hn::Set(d, *op->other);
        break;
      case ChainForm::self:
        break;
    }
    switch (op->code) {
      case ChainCode::add:
        a = hn::Add(left, right);
        break;
      case ChainCode::sub:
        a = hn::Sub(left, right);
        break;
      case ChainCode::mul:
      case ChainCode::square:
        a = hn::Mul(left, right);
        break;
      case ChainCode::div:
        a = hn::Div(left, right);
        break;
      case ChainCode::max:
        a = larger(left, right);
        break;
      case ChainCode::min:
        a = smaller(left, right);
        break;
      case ChainCode::sqrt:
        a = hn::Sqrt(a);
        break;
      case ChainCode::neg:
        a = hn::Neg(a);
        break;
      case ChainCode::abs:
        a = hn::Abs(a);
        break;
      case ChainCode::round:
        a = rounded(a);
        break;
      case ChainCode::none:
      case ChainCode::widen:
      case ChainCode::narrow:
        break;
    }
  }
  if constexpr (whole)
    out.store(a, i);
  else
    out.store_some(a, i, m);
}

void run(const ChainOp* ops, int count, const void* from, void* to, bool around, std::int64_t n) {
  const Source in{from, count > 0 && ops[0].code == ChainCode::widen};
  const Target out{to, count > 0 && ops[count - 1].code == ChainCode::narrow};
  if (out.half) --count;
  if (in.half) ++ops, --count;
  const std::int64_t whole = n / kGroup * kGroup;
  const bool aligned = reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
  if (around && aligned && !out.half)
    run_groups<true>(ops, count, in, out, whole);
  else if (whole > 0)
    run_groups<false>(ops, count, in, out, whole);
  std::int64_t i = whole;
  for (; i + kStep <= n; i += kStep) run_vector<true>(ops, count, in, out, i, kStep);
  if (i < n) run_vector<false>(ops, count, in, out, i, static_cast<std::size_t>(n - i));
}

ChainFn find_chain() { return run; }
#else
ChainFn find_chain() { return nullptr; }
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_chain);
ChainFn chain_kernel() { return SHMAP_BEST(find_chain)(); }
}  // namespace shmap::cpu
#endif
