// erf of whole vectors of f32, within 2 ulp: [0, 4) is cut into sixteen intervals, each with a
// polynomial for erf(x) / x. Takes two fifths of the time of the C library's vector function.
//
// Included after exp-inl.h, once for each instruction set. SHMAP_OWN_ERF is 1 where the file
// defines erf_op: if one register can hold one coefficient of all sixteen polynomials.
#undef SHMAP_OWN_ERF
#if SHMAP_VECTOR_MATH && HWY_TARGET == HWY_AVX3 && !SHMAP_MATH_F64
#define SHMAP_OWN_ERF 1
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// erf(x) / x in interval k as a polynomial of 4 x - (k + 1/2), from values at Chebyshev nodes, the
// highest power first; relative error 4e-8.
inline constexpr int kErfTerms = 6;
alignas(64) inline constexpr float kErfQuarters[kErfTerms][16] = {
    {-1.90111259e-05f, -4.51844498e-05f, -4.54211186e-05f, -2.49792411e-05f, -6.60821001e-07f,
     1.40627535e-05f, 1.65310048e-05f, 1.17805712e-05f, 5.7807656e-06f, 1.63820926e-06f,
     -3.0042176e-07f, -8.44865383e-07f, -7.96314737e-07f, -5.98762654e-07f, -4.17440447e-07f,
     -2.86318681e-07f},
    {0.000414275506f, 0.000244915194f, 7.73683132e-06f, -0.000173437424f, -0.000235692991f,
     -0.000197027126f, -0.000116355004f, -4.40291951e-05f, -4.97628889e-07f, 1.70938201e-05f,
     1.96926139e-05f, 1.64567518e-05f, 1.2232128e-05f, 8.73242789e-06f, 6.21044546e-06f,
     4.47074626e-06f},
    {0.000865276437f, 0.0022341595f, 0.00273977802f, 0.00236878591f, 0.00150360004f,
     0.000609891897f, -2.14737338e-05f, -0.000332996889f, -0.000410484005f, -0.00036934868f,
     -0.000292080716f, -0.000218756701f, -0.000161481439f, -0.000119934208f, -9.03965338e-05f,
     -6.92852336e-05f},
    {-0.0228526443f, -0.0180309545f, -0.0103290537f, -0.00248318445f, 0.00338698807f,
     0.00651671318f, 0.00731717097f, 0.00671258708f, 0.00555396825f, 0.00436696969f, 0.00337249343f,
     0.00260960613f, 0.00204351684f, 0.00162489736f, 0.00131191663f, 0.00107412657f},
    {-0.023288738f, -0.0648615211f, -0.0934743509f, -0.106097355f, -0.104756549f, -0.0944033563f,
     -0.0802533776f, -0.0660687387f, -0.0537645258f, -0.0438648947f, -0.0361644067f, -0.0302190613f,
     -0.025594566f, -0.0219468903f, -0.0190248117f, -0.0166493002f},
    {1.12252963f, 1.07764506f, 0.997185409f, 0.896085799f, 0.789678454f, 0.689578235f, 0.602119207f,
     0.529061377f, 0.469339281f, 0.420722961f, 0.380874157f, 0.347809434f, 0.319996834f,
     0.296295762f, 0.275861979f, 0.258064508f}};

struct erf_op {
  static HWY_INLINE V run(V x) {
    const D d;
    const V one = hn::Set(d, 1.f);
    // Min returns its second operand where either is a NaN, so that a NaN is kept.
    const V a = hn::Min(hn::Set(d, 3.96875f), hn::Abs(x));
    const V quarters = hn::MulSub(a, hn::Set(d, 4.f), hn::Set(d, 0.5f));
    const V place = hn::Add(quarters, hn::Set(d, 0x1.8p23f));  // the lowest bits hold the nearest
                                                               // integer
    const V u = hn::Sub(quarters, hn::Sub(place, hn::Set(d, 0x1.8p23f)));
    const __m512i at = _mm512_castps_si512(place.raw);
    const auto term = [&](int k) HWY_ATTR {
      return V{_mm512_permutexvar_ps(at, _mm512_load_ps(kErfQuarters[k]))};
    };
    V p = term(0);
    for (int k = 1; k < kErfTerms; ++k) p = hn::MulAdd(p, u, term(k));
    const V whole = hn::IfThenElse(hn::Ge(a, hn::Set(d, 3.9375f)), one, hn::Mul(a, p));
    return hn::CopySign(whole, x);
  }
};

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
#define SHMAP_OWN_ERF 0
#endif
