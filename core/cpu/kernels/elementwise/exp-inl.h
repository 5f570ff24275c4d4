// exp and tanh of whole vectors: a power of two times a polynomial of the remainder. They are
// within 2.5 ulp (exp within 1) over their whole range, including infinities, NaNs and subnormal
// results. They take a third of the time of the C library, which calls a function for each vector,
// and takes a slow path element by element if one element is out of the common range.
//
// Included after vector_math-inl.h, once for each instruction set; empty where SHMAP_VECTOR_MATH is
// 0.
#if SHMAP_VECTOR_MATH
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// x = n log 2 + r with |r| <= log(2) / 2, and p = (e^r - 1 - r) / r^2.
struct Reduced {
  V n, r, p;
  HWY_INLINE V exp() const {  // e^r
    const V one = hn::Set(D{}, Real{1});
    return hn::MulAdd(hn::MulAdd(p, r, one), r, one);
  }
  HWY_INLINE V exp_less_one() const { return hn::MulAdd(hn::Mul(r, r), p, r); }  // e^r - 1
};

// p, the highest power of r first, from values at Chebyshev nodes; error relative to e^r: 2.3e-10
// for f32, 2.2e-19 for f64.
#if SHMAP_MATH_F64
inline constexpr double kTerms[] = {2.091188493024799e-09,
                                    2.510516221256135e-08,
                                    2.7557281940830004e-07,
                                    2.7557255566472074e-06,
                                    2.4801587316521343e-05,
                                    0.0001984126987464186,
                                    0.0013888888888887937,
                                    0.008333333333326214,
                                    0.041666666666666664,
                                    0.1666666666666667,
                                    0.5};
inline constexpr auto& kExpTerms = kTerms;
// log 2 in two parts; the first is short enough that n times it is exact.
inline constexpr double kLog2High = 0x1.62e42feep-1, kLog2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kRounds = 0x1.8p52;                // x + kRounds - kRounds is x rounded to
                                                           // an integer
inline constexpr double kExpMost = 710, kExpLeast = -746;  // results beyond these: infinity, and 0
inline constexpr double kTanhMost = 20;                    // result beyond this: 1
inline constexpr int kMantissa = 52;
#else
inline constexpr float kTerms[] = {0.0001989103f, 0.0013933686f, 0.0083333105f,
                                   0.041666463f,  0.16666667f,   0.5f};
// Enough for e^r itself: the polynomial of least error relative to e^r, 3.1e-9.
inline constexpr float kExpTerms[] = {0.00138145996f, 0.00836871688f, 0.041668388f, 0.166665206f,
                                      0.499999934f};
inline constexpr float kLog2High = 0x1.62e4p-1f, kLog2Low = 0x1.7f7d1cp-20f;
inline constexpr float kRounds = 0x1.8p23f;
inline constexpr float kExpMost = 89, kExpLeast = -104;
inline constexpr float kTanhMost = 10;
inline constexpr int kMantissa = 23;
#endif

template <std::size_t kCount>
HWY_INLINE Reduced reduce_exponent(V x, const Real (&terms)[kCount]) {
  const D d;
  const V log2_e = hn::Set(d, static_cast<Real>(1.44269504088896340736));
  const V rounds = hn::Set(d, kRounds);
  const V n = hn::Sub(hn::MulAdd(x, log2_e, rounds), rounds);
  const V r = hn::NegMulAdd(n, hn::Set(d, kLog2Low), hn::NegMulAdd(n, hn::Set(d, kLog2High), x));
  V p = hn::Set(d, terms[0]);
  for (std::size_t k = 1; k < kCount; ++k) p = hn::MulAdd(p, r, hn::Set(d, terms[k]));
  return {n, r, p};
}

using Int = hn::RebindToSigned<D>;
HWY_INLINE hn::Vec<Int> as_integers(V n) {  // n: whole numbers below 2^22
  const V rounds = hn::Set(D{}, kRounds);
  return hn::Sub(hn::BitCast(Int{}, hn::Add(n, rounds)), hn::BitCast(Int{}, rounds));
}
// 2^n for n whose result is a normal number.
HWY_INLINE V power_of_two(hn::Vec<Int> n) {
  constexpr int bias = sizeof(Real) == 8 ? 1023 : 127;
  const auto exponent = hn::Add(n, hn::Set(Int{}, bias));
  return hn::BitCast(D{}, hn::ShiftLeft<kMantissa>(exponent));
}
// x 2^n with one rounding, also where the result overflows or is subnormal.
HWY_INLINE V scaled(V x, V n) {
#if HWY_TARGET == HWY_AVX3 && SHMAP_MATH_F64
  return V{_mm512_scalef_pd(x.raw, n.raw)};
#elif HWY_TARGET == HWY_AVX3
  return V{_mm512_scalef_ps(x.raw, n.raw)};
#else
  const auto whole = as_integers(n), half = hn::ShiftRight<1>(whole);
  return hn::Mul(hn::Mul(x, power_of_two(half)), power_of_two(hn::Sub(whole, half)));
#endif
}

struct exp_op {
  static HWY_INLINE V run(V x) {
    const D d;
    const V most = hn::Set(d, kExpMost), least = hn::Set(d, kExpLeast);
    // Max and Min return their second operand where either is a NaN, so that a NaN is kept.
    const Reduced reduced = reduce_exponent(hn::Max(least, hn::Min(most, x)), kExpTerms);
    return scaled(reduced.exp(), reduced.n);
  }
};

struct tanh_op {  // E / (E + 2) with E = e^(2 |x|) - 1 keeps the digits of small x
  static HWY_INLINE V run(V x) {
    const D d;
    const V most = hn::Set(d, kTanhMost);
    const V a = hn::Min(most, hn::Abs(x));
    const Reduced reduced = reduce_exponent(hn::Add(a, a), kTerms);
    const V power = power_of_two(as_integers(reduced.n));
    const V less = hn::Sub(power, hn::Set(d, Real{1}));
    const V e = hn::MulAdd(power, reduced.exp_less_one(), less);
    return hn::CopySign(hn::Div(e, hn::Add(e, hn::Set(d, Real{2}))), x);
  }
};

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
