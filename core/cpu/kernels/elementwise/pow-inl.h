// pow of f32 computed in f64: 2^(y log2 |x|). It is within 0.56 ulp and takes a third of the time
// of the C library's vector function, which represents the logarithm by two floats.
//
// Included after vector_math-inl.h, once for each instruction set; SHMAP_OWN_POW is 1 where it
// defines Pow.
#undef SHMAP_OWN_POW
#if SHMAP_VECTOR_MATH && HWY_TARGET == HWY_AVX3 && !SHMAP_MATH_F64
#define SHMAP_OWN_POW 1
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// Indexed by n modulo 16 for n from 12 to 24: the inverse of n / 16, and -log2 of that inverse.
// Both are exact at n = 16, so that the logarithm keeps its digits around 1.
alignas(64) inline constexpr double kPowInverse[16] = {0x1.0000000000000p+0,
                                                       0x1.e1e1e1e1e1e1ep-1,
                                                       0x1.c71c71c71c71cp-1,
                                                       0x1.af286bca1af28p-1,
                                                       0x1.999999999999ap-1,
                                                       0x1.8618618618618p-1,
                                                       0x1.745d1745d1746p-1,
                                                       0x1.642c8590b2164p-1,
                                                       0x1.5555555555555p-1,
                                                       0.0,
                                                       0.0,
                                                       0.0,
                                                       0x1.5555555555555p+0,
                                                       0x1.3b13b13b13b14p+0,
                                                       0x1.2492492492492p+0,
                                                       0x1.1111111111111p+0};
alignas(64) inline constexpr double kPowLog2[16] = {0.0,
                                                    0x1.663f6fac91318p-4,
                                                    0x1.5c01a39fbd68bp-3,
                                                    0x1.fbc16b902680dp-3,
                                                    0x1.49a784bcd1b8ap-2,
                                                    0x1.91bba891f170ap-2,
                                                    0x1.d6753e032ea0ep-2,
                                                    0x1.0c10500d63aa7p-1,
                                                    0x1.2b803473f7ad2p-1,
                                                    0.0,
                                                    0.0,
                                                    0.0,
                                                    -0x1.a8ff971810a5dp-2,
                                                    -0x1.32bfee370ee6ap-2,
                                                    -0x1.8a8980abfbd30p-3,
                                                    -0x1.7d60496cfbb4bp-4};
// From values at Chebyshev nodes, the highest power first: log2(1 + r) / r for |r| <= 1 / 24,
// relative error 2.4e-11; and 2^f for |f| <= 1 / 2, relative error 2.5e-9.
inline constexpr double kPowLogTerms[] = {-0x1.ed6738b4a3486p-3, 0x1.2803ae50aae6fp-2,
                                          -0x1.715461c378ed4p-2, 0x1.ec708644d263cp-2,
                                          -0x1.71547652f92bap-1, 0x1.71547652dd518p+0};
inline constexpr double kPowExpTerms[] = {
    0x1.443fffc90db59p-13, 0x1.5f48c04f62e50p-10, 0x1.3b2a1b7152befp-7, 0x1.c6aecc669b6ddp-5,
    0x1.ebfbe045f4d3cp-3,  0x1.62e430d034702p-1,  0x1.0000000000000p+0};

struct Pow {
  using Wide = hn::ScalableTag<double>;
  using WideV = hn::Vec<Wide>;
  using Half = hn::Half<D>;
  static_assert(hn::MaxLanes(Wide{}) == 8);

  // |x| > 0 and finite, y finite.
  static HWY_INLINE hn::Vec<Half> run(hn::Vec<Half> x, hn::Vec<Half> y) {
    const Wide d;
    const WideV a = hn::PromoteTo(d, x);
    // a = m 2^e with m in [0.75, 1.5): the factor, a little above 4 / 3, takes 1.5 to the next e.
    const WideV m{_mm512_getmant_pd(a.raw, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_zero)};
    const WideV e{_mm512_getexp_pd(hn::Mul(a, hn::Set(d, 0x1.5555555555556p+0)).raw)};
    // Adding 1.5 · 2^52 leaves the nearest whole number of sixteenths in the lowest bits.
    const WideV place = hn::MulAdd(m, hn::Set(d, 16.0), hn::Set(d, 0x1.8p52));
    const __m512i at = _mm512_castpd_si512(place.raw);
    const WideV inverse{
        _mm512_permutex2var_pd(_mm512_load_pd(kPowInverse), at, _mm512_load_pd(kPowInverse + 8))};
    const WideV start{
        _mm512_permutex2var_pd(_mm512_load_pd(kPowLog2), at, _mm512_load_pd(kPowLog2 + 8))};
    const WideV r = hn::MulSub(m, inverse, hn::Set(d, 1.0));
    WideV p = hn::Set(d, kPowLogTerms[0]);
    for (std::size_t k = 1; k < std::size(kPowLogTerms); ++k)
      p = hn::MulAdd(p, r, hn::Set(d, kPowLogTerms[k]));
    const WideV log2 = hn::MulAdd(p, r, hn::Add(e, start));
    const WideV exponent = hn::Mul(hn::PromoteTo(d, y), log2);
    const WideV n = hn::Round(exponent), f = hn::Sub(exponent, n);
    WideV q = hn::Set(d, kPowExpTerms[0]);
    for (std::size_t k = 1; k < std::size(kPowExpTerms); ++k)
      q = hn::MulAdd(q, f, hn::Set(d, kPowExpTerms[k]));
    return hn::DemoteTo(Half{}, WideV{_mm512_scalef_pd(q.raw, n.raw)});
  }

  static HWY_INLINE V run(V x, V y) {
    const D d;
    const V infinity = hn::Set(d, HUGE_VALF), zero = hn::Zero(d);
    const auto usual =
        hn::And(hn::And(hn::Gt(x, zero), hn::Lt(x, infinity)), hn::Lt(hn::Abs(y), infinity));
    const V result = of_size(hn::Abs(x), y);
    if (hn::AllTrue(d, usual)) [[likely]]
      return result;
    return unusual(x, y, result);
  }

 private:
  static HWY_INLINE V of_size(V x, V y) {
    const D d;
    const Half h;
    return hn::Combine(d, run(hn::UpperHalf(h, x), hn::UpperHalf(h, y)),
                       run(hn::LowerHalf(h, x), hn::LowerHalf(h, y)));
  }
  // Fixes the elements whose x is not positive, or whose x or y is not finite.
  static HWY_NOINLINE V unusual(V x, V y, V result) {
    const D d;
    const V one = hn::Set(d, 1.f), zero = hn::Zero(d), infinity = hn::Set(d, HUGE_VALF);
    const auto is_zero = hn::Eq(x, zero);
    const V of_zero =
        hn::IfThenElse(hn::Gt(y, zero), zero, hn::IfThenElse(hn::Lt(y, zero), infinity, one));
    result = hn::IfThenElse(is_zero, of_zero, result);
    const V half = hn::Mul(y, hn::Set(d, 0.5f));
    const auto whole = hn::Eq(hn::Round(y), y), even = hn::Eq(hn::Round(half), half);
    const auto negative = hn::Lt(hn::CopySign(one, x), zero);
    result = hn::IfThenElse(hn::And(negative, hn::AndNot(even, whole)), hn::Neg(result), result);
    result = hn::IfThenElse(hn::AndNot(whole, hn::Lt(x, zero)), hn::NaN(d), result);
    const auto finite = hn::And(hn::Lt(hn::Abs(x), infinity), hn::Lt(hn::Abs(y), infinity));
    if (hn::AllTrue(d, finite)) return result;
    alignas(64) float a[hn::MaxLanes(D{})], b[hn::MaxLanes(D{})], r[hn::MaxLanes(D{})];
    hn::Store(x, d, a);
    hn::Store(y, d, b);
    hn::Store(result, d, r);
    for (std::size_t i = 0; i < hn::MaxLanes(D{}); ++i)
      if (!std::isfinite(a[i]) || !std::isfinite(b[i])) r[i] = std::pow(a[i], b[i]);
    return hn::Load(d, r);
  }
};

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
#define SHMAP_OWN_POW 0
#endif
