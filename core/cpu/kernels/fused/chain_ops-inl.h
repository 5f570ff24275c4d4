// The operations of chains, each in all its forms: on the eight vectors of a group, and on an array
// of vectors. For chain.cpp.
//
// Included after chain_vectors-inl.h, once for each instruction set.
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
constexpr int packed(ChainCode code, ChainForm form) {
  return 8 * static_cast<int>(code) + static_cast<int>(form);
}

// One switch for both kinds of vectors, which define SHMAP_EACH and SHMAP_EACH_ONE (a loop over the
// vectors), SHMAP_KEEP (the case of `keep`), and SHMAP_VECTOR and SHMAP_KEPT: vector k of the array
// `other`, and of the value that is kept.
#define SHMAP_VALUE(a, k) a
#define SHMAP_SCALAR(a, k) scalar
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
#define SHMAP_ONE(code, f)                         \
  case packed(ChainCode::code, ChainForm::self): { \
    SHMAP_EACH_ONE(f);                             \
  }
#define SHMAP_SQUARE                                 \
  case packed(ChainCode::square, ChainForm::self): { \
    SHMAP_EACH(hn::Mul, SHMAP_VALUE, SHMAP_VALUE);   \
  }
#define SHMAP_EXP                                 \
  case packed(ChainCode::exp, ChainForm::self): { \
    if constexpr (!heavy) break;                  \
    SHMAP_EACH_ONE(exponential);                  \
  }
#define SHMAP_DIVISION(code, f)                      \
  case packed(ChainCode::code, ChainForm::scalar): { \
    if constexpr (!heavy) break;                     \
    const Divides<T> by(op.other);                   \
    SHMAP_EACH_ONE(by.f);                            \
  }
#define SHMAP_FLOAT_OPS       \
  SHMAP_FORMS(add, hn::Add)   \
  SHMAP_FORMS(sub, hn::Sub)   \
  SHMAP_FORMS(mul, hn::Mul)   \
  SHMAP_FORMS(div, hn::Div)   \
  SHMAP_FORMS(max, larger)    \
  SHMAP_FORMS(min, smaller)   \
  SHMAP_SQUARE                \
  SHMAP_EXP                   \
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
  SHMAP_DIVISION(quotient, quotient)                                       \
  SHMAP_DIVISION(rem, remainder)                                           \
  SHMAP_ONE(neg, Integers<T>::neg)                                         \
  SHMAP_ONE(abs, Integers<T>::abs)                                         \
  SHMAP_ONE(not_, hn::Not)
#define SHMAP_SWITCH                        \
  if constexpr (std::is_same_v<T, float>) { \
    switch (packed(op.code, op.form)) {     \
      SHMAP_KEEP                            \
      SHMAP_FLOAT_OPS                       \
      default:                              \
        break;                              \
    }                                       \
  } else {                                  \
    switch (packed(op.code, op.form)) {     \
      SHMAP_KEEP                            \
      SHMAP_INT_OPS                         \
      default:                              \
        break;                              \
    }                                       \
  }

// Applies an operation to the eight vectors of the group at `i`. kept: kGroup elements where
// operations may keep a value (`keeps`). heavy: operations may be exp, or divisions of integers,
// whose constants the compiler keeps in registers that the other operations then lack.
#define SHMAP_VECTOR(a, k) hn::LoadU(d, other + i + k * kStep)
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
#define SHMAP_EACH_ONE(f)                         \
  a0 = f(a0), a1 = f(a1), a2 = f(a2), a3 = f(a3); \
  a4 = f(a4), a5 = f(a5), a6 = f(a6), a7 = f(a7); \
  break
#define SHMAP_KEEP                                                          \
  case packed(ChainCode::keep, ChainForm::self): {                          \
    if constexpr (!keeps) break;                                            \
    hn::Store(a0, d, kept), hn::Store(a1, d, kept + kStep);                 \
    hn::Store(a2, d, kept + 2 * kStep), hn::Store(a3, d, kept + 3 * kStep); \
    hn::Store(a4, d, kept + 4 * kStep), hn::Store(a5, d, kept + 5 * kStep); \
    hn::Store(a6, d, kept + 6 * kStep), hn::Store(a7, d, kept + 7 * kStep); \
    break;                                                                  \
  }
template <class T, bool keeps, bool heavy, class X = Vector<T>>
HWY_INLINE void apply(const ChainOp& op, std::int64_t i, T* kept, X& a0, X& a1, X& a2, X& a3, X& a4,
                      X& a5, X& a6, X& a7) {
  const Tag<T> d;
  const T* const other = static_cast<const T*>(op.other);
  SHMAP_SWITCH
}
#undef SHMAP_KEEP
#undef SHMAP_EACH_ONE
#undef SHMAP_EACH
#undef SHMAP_KEPT
#undef SHMAP_VECTOR

// Applies an operation to kVectors vectors. load(p, k): vector k of the array p.
#define SHMAP_VECTOR(a, k) load(other, k)
#define SHMAP_KEPT(a, k) kept[k]
#define SHMAP_EACH(f, left, right)                                            \
  for (int k = 0; k < kVectors; ++k) a[k] = f(left(a[k], k), right(a[k], k)); \
  break
#define SHMAP_EACH_ONE(f)                            \
  for (int k = 0; k < kVectors; ++k) a[k] = f(a[k]); \
  break
#define SHMAP_KEEP                                     \
  case packed(ChainCode::keep, ChainForm::self): {     \
    for (int k = 0; k < kVectors; ++k) kept[k] = a[k]; \
    break;                                             \
  }
template <class T, int kVectors, class Load, class X = Vector<T>>
HWY_INLINE void apply(const ChainOp& op, const Load& load, X (&kept)[kVectors], X (&a)[kVectors]) {
  constexpr bool keeps = true, heavy = true;
  const Tag<T> d;
  const T* const other = static_cast<const T*>(op.other);
  SHMAP_SWITCH
}
#undef SHMAP_KEEP
#undef SHMAP_EACH_ONE
#undef SHMAP_EACH
#undef SHMAP_KEPT
#undef SHMAP_VECTOR

#undef SHMAP_SWITCH
#undef SHMAP_INT_OPS
#undef SHMAP_FLOAT_OPS
#undef SHMAP_DIVISION
#undef SHMAP_EXP
#undef SHMAP_SQUARE
#undef SHMAP_ONE
#undef SHMAP_FORMS
#undef SHMAP_SCALAR
#undef SHMAP_VALUE
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
