// The transcendentals and roots of one float type, `Real`, for unary_math_f32.cpp and its f64 twin.
//
// Included after erf-inl.h, once for each instruction set. The last, partial vector takes
// the same path as the others, so that a result does not depend on its position.
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTOR_MATH
template <class Op>
void map(const void* in, void* out, std::int64_t n) {
  const D d;
  constexpr std::int64_t lanes = hn::MaxLanes(D{});
  const Real* a = static_cast<const Real*>(in);
  Real* o = static_cast<Real*>(out);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Op::run(hn::LoadU(d, a + i)), d, o + i);
  if (i == n) return;
  const auto mask = hn::FirstN(d, static_cast<std::size_t>(n - i));
  // Idle lanes repeat an element: a zero could take a function's slow path.
  const V x = hn::IfThenElse(mask, hn::MaskedLoad(mask, d, a + i), hn::Set(d, a[i]));
  hn::BlendedStore(Op::run(x), mask, d, o + i);
}

#define SHMAP_MATH(name) SHMAP_VECTOR_FUNCTION_1(name##_op, name)
#else
template <class Op>
void map(const void* in, void* out, std::int64_t n) {
  const Real* a = static_cast<const Real*>(in);
  Real* o = static_cast<Real*>(out);
  SHMAP_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) o[i] = Op::run(a[i]);
}

#define SHMAP_MATH(name)                             \
  struct name##_op {                                 \
    static Real run(Real x) { return std::name(x); } \
  };
SHMAP_MATH(exp)
SHMAP_MATH(tanh)
#endif

SHMAP_MATH(exp2)
SHMAP_MATH(expm1)
SHMAP_MATH(log)
SHMAP_MATH(log1p)
SHMAP_MATH(sin)
SHMAP_MATH(cos)
SHMAP_MATH(tan)
SHMAP_MATH(asin)
SHMAP_MATH(acos)
SHMAP_MATH(atan)
SHMAP_MATH(sinh)
SHMAP_MATH(cosh)
SHMAP_MATH(asinh)
SHMAP_MATH(acosh)
SHMAP_MATH(atanh)
SHMAP_MATH(cbrt)
#if !SHMAP_OWN_ERF
SHMAP_MATH(erf)
#endif
SHMAP_MATH(erfc)

#if SHMAP_VECTOR_MATH
struct sqrt_op {
  static HWY_INLINE V run(V x) { return hn::Sqrt(x); }
};
struct rsqrt_op {
  static HWY_INLINE V run(V x) { return hn::Div(hn::Set(D{}, Real{1}), hn::Sqrt(x)); }
};
struct logistic_op {  // 1 / (1 + e^-x), or e^x / (1 + e^x): the exponential never overflows
  static HWY_INLINE V run(V x) {
    const V one = hn::Set(D{}, Real{1});
    const V e = exp_op::run(hn::Neg(hn::Abs(x)));
    const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(D{})), e, one);
    return hn::Div(numerator, hn::Add(one, e));
  }
};
#else
struct sqrt_op {
  static Real run(Real x) { return std::sqrt(x); }
};
struct rsqrt_op {
  static Real run(Real x) { return Real{1} / std::sqrt(x); }
};
struct logistic_op {
  static Real run(Real x) {
    const Real e = std::exp(-std::fabs(x));
    return (x < 0 ? e : Real{1}) / (Real{1} + e);
  }
};
#endif
#undef SHMAP_MATH

// Giles' single-precision approximation: polynomials in w = -log(1 - x^2) around 2.5, and in
// sqrt(w) around 3 in the tails.
inline constexpr int kErfInvTerms = 9;
inline constexpr double kErfInvCentre[kErfInvTerms] = {
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
inline constexpr double kErfInvTail[kErfInvTerms] = {-0.000200214257, 0.000100950558, 0.00134934322,
                                                     -0.00367342844,  0.00573950773,  -0.0076224613,
                                                     0.00943887047,   1.00167406,     2.83297682};

#if SHMAP_MATH_F64
// Starts from a few correct digits, then applies Halley's steps to erf(y) = x, or to erfc in the
// tails, where erf has lost its digits.
double erf_inv(double x) {
  const double a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(HUGE_VAL, x) : std::nan("");
  if (a < 1e-9) return x * 0.886226925452758013649;  // sqrt(pi) / 2: the cubic term is lost
  const double w = -std::log((1 - a) * (1 + a));
  double y;
  if (w < 16) {
    const bool centre = w < 5;
    const double t = centre ? w - 2.5 : std::sqrt(w) - 3;
    y = 0;
    for (int k = 0; k < kErfInvTerms; ++k) y = y * t + (centre ? kErfInvCentre : kErfInvTail)[k];
    y *= a;
  } else {
    y = std::sqrt(w - 0.5 * std::log(3.14159265358979323846 * w));
  }
  for (int step = 0; step < 3; ++step) {
    const double error = a > 0.5 ? (1 - a) - std::erfc(y) : std::erf(y) - a;
    const double slope = 1.12837916709551257390 * std::exp(-y * y);  // 2 / sqrt(pi) e^(-y^2)
    const double newton = error / slope;
    y -= newton / (1 + y * newton);
  }
  return std::copysign(y, x);
}
struct erf_inv_op;  // computes one element at a time
template <>
void map<erf_inv_op>(const void* in, void* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    static_cast<double*>(out)[i] = erf_inv(static_cast<const double*>(in)[i]);
}
#elif SHMAP_VECTOR_MATH
// -log(1 + f) - 2.5 for |f| <= 1/3, from its values at Chebyshev nodes, the highest power first.
// The error is 4e-8, of which a sixth remains in erf_inv's result.
inline constexpr float kErfInvLog[] = {0.157655478f,  -0.175025418f, 0.163322672f,
                                       -0.197189406f, 0.250136197f,  -0.333422154f,
                                       0.499998093f,  -0.999999225f, -2.5f};

// Returns w - 2.5 for y = 1 - x^2 in (0, 1]. Only the logarithm's absolute error matters, which
// takes fewer terms than a relative error of that size would.
HWY_INLINE V erf_inv_place(V y) {
  const D d;
  const Int ints;
  constexpr std::int32_t kTwoThirds = 0x3f2aaaab;  // y = 2^e (1 + f) with 1 + f from there on
  const auto from_there = hn::Sub(hn::BitCast(ints, y), hn::Set(ints, kTwoThirds));
  const auto fraction = hn::And(from_there, hn::Set(ints, 0x7fffff));
  const V f =
      hn::Sub(hn::BitCast(d, hn::Add(fraction, hn::Set(ints, kTwoThirds))), hn::Set(d, 1.f));
  V log = hn::Set(d, kErfInvLog[0]);
  for (std::size_t k = 1; k < std::size(kErfInvLog); ++k)
    log = hn::MulAdd(log, f, hn::Set(d, kErfInvLog[k]));
  const V e = hn::ConvertTo(d, hn::ShiftRight<23>(from_there));
  return hn::NegMulAdd(e, hn::Set(d, 0.693147181f), log);
}

#if HWY_TARGET == HWY_AVX3
// erf_inv(x) / x as a polynomial of y = 1 - x^2 in each half of the eight powers of two below 1,
// from its values at Chebyshev nodes, the highest power first; relative error 4e-8. One register
// holds a coefficient of all sixteen polynomials; a half's index in it is the lower three bits of
// its exponent and the highest bit of its fraction.
inline constexpr float kErfInvLeast = 0x1p-8f;  // least y; smaller y use the tail's polynomial
alignas(64) inline constexpr float kErfInvHalves[7][16] = {
    {0.00867374428f, 0.00114301755f, 0.00907696504f, 0.00119800388f, 0.00952812564f, 0.00125934707f,
     0.0100286286f, 0.00132677983f, 0.0105710346f, 0.00139834604f, 0.0111293551f, 0.0014688822f,
     0.0116460714f, 0.00152842957f, 0.00831368845f, 0.00109392824f},
    {-0.0130480677f, -0.00242041261f, -0.01366698f, -0.00253908755f, -0.0143581098f, -0.0026710087f,
     -0.0151203731f, -0.00281475019f, -0.0159358103f, -0.00296451035f, -0.016753532f,
     -0.00310678827f, -0.0174713135f, -0.00321770599f, -0.0124954227f, -0.00231438084f},
    {0.0197089463f, 0.00525213266f, 0.0206683148f, 0.0055155959f, 0.0217349064f, 0.00580642605f,
     0.0228983667f, 0.00611840747f, 0.0241146628f, 0.00643346645f, 0.0252804141f, 0.00671484321f,
     0.0262111612f, 0.00690431241f, 0.0188515354f, 0.00501619792f},
    {-0.0336294584f, -0.0125510953f, -0.0353136398f, -0.0131959589f, -0.0371673703f, -0.0138973575f,
     -0.0391465165f, -0.014627696f, -0.0411313921f, -0.0153245851f, -0.0428874716f, -0.0158793218f,
     -0.0440527983f, -0.0161430538f, -0.0321188457f, -0.0119699975f},
    {0.0654130057f, 0.0341885835f, 0.0687754899f, 0.035968814f, 0.0723683387f, 0.0378286876f,
     0.0759997144f, 0.0396290831f, 0.0792969614f, 0.0411275886f, 0.0816778839f, 0.0419833697f,
     0.0824176222f, 0.04182446f, 0.062353082f, 0.03255051f},
    {-0.175309524f, -0.128051788f, -0.183424234f, -0.133720711f, -0.190967873f, -0.13867718f,
     -0.196974665f, -0.142118812f, -0.200181261f, -0.143082798f, -0.199225798f, -0.140653342f,
     -0.193025038f, -0.134269744f, -0.167256698f, -0.122235648f},
    {1.99949884f, 1.92493165f, 1.8440752f, 1.76612663f, 1.68181074f, 1.60080791f, 1.51359415f,
     1.43030393f, 1.34128749f, 1.25702775f, 1.16791141f, 1.0845598f, 0.997577846f, 0.917408347f,
     2.14788365f, 2.07672572f}};
HWY_INLINE V erf_inv_centre(V y) {
  const D d;
  const hn::RebindToUnsigned<D> bits;
  // y == 1 is replaced by the next smaller float, because the table covers only y < 1.
  const auto of_y = hn::BitCast(bits, hn::Min(y, hn::Set(d, 0x1.fffffep-1f)));
  const auto fraction = hn::And(of_y, hn::Set(bits, 0x3fffff));
  const V u =
      hn::Sub(hn::BitCast(d, hn::Or(fraction, hn::Set(bits, 0x3f800000))), hn::Set(d, 1.25f));
  const __m512i at = hn::ShiftRight<22>(of_y).raw;
  const auto term = [&](int k) HWY_ATTR {
    return V{_mm512_permutexvar_ps(at, _mm512_load_ps(kErfInvHalves[k]))};
  };
  V p = term(0);
  for (int k = 1; k < 7; ++k) p = hn::MulAdd(p, u, term(k));
  return p;
}
#else
inline constexpr float kErfInvLeast = 6.7379470e-3f;  // e^-5: w is 5
HWY_INLINE V erf_inv_centre(V y) {
  const D d;
  const V place = erf_inv_place(y);
  V p = hn::Set(d, static_cast<float>(kErfInvCentre[0]));
  for (int k = 1; k < kErfInvTerms; ++k)
    p = hn::MulAdd(p, place, hn::Set(d, static_cast<float>(kErfInvCentre[k])));
  return p;
}
#endif

struct erf_inv_op {
  static HWY_INLINE V run(V x) {
    const D d;
    const V one = hn::Set(d, 1.f);
    const V y = hn::Mul(hn::Sub(one, x), hn::Add(one, x));
    const auto centre = hn::Ge(y, hn::Set(d, kErfInvLeast));
    const V of_centre = hn::Mul(erf_inv_centre(y), x);
    // One in some hundreds of uniform numbers is in the tail, so that most vectors need neither the
    // tail's terms nor the root.
    if (hn::AllTrue(d, centre)) [[likely]]
      return of_centre;
    const V t = hn::Sub(hn::Sqrt(hn::Add(erf_inv_place(y), hn::Set(d, 2.5f))), hn::Set(d, 3.f));
    V p = hn::Set(d, static_cast<float>(kErfInvTail[0]));
    for (int k = 1; k < kErfInvTerms; ++k)
      p = hn::MulAdd(p, t, hn::Set(d, static_cast<float>(kErfInvTail[k])));
    // erf_inv_place(y) is not a logarithm if y is 0 (x is -1 or 1) or negative (|x| > 1).
    const V infinity = hn::CopySign(hn::Set(d, HUGE_VALF), x);
    const V of_tail = hn::IfThenElse(hn::Eq(hn::Abs(x), one), infinity, hn::Mul(p, x));
    const V result = hn::IfThenElse(centre, of_centre, of_tail);
    return hn::IfThenElse(hn::Lt(y, hn::Zero(d)), hn::NaN(d), result);
  }
};
#else
struct erf_inv_op {
  static float run(float x) {
    if (std::fabs(x) == 1) return std::copysign(HUGE_VALF, x);
    const float w = -std::log((1 - x) * (1 + x));
    const bool centre = w < 5;
    const float t = centre ? w - 2.5f : std::sqrt(w) - 3;
    float p = 0;
    for (int k = 0; k < kErfInvTerms; ++k)
      p = p * t + static_cast<float>((centre ? kErfInvCentre : kErfInvTail)[k]);
    return p * x;
  }
};
#endif

UnaryFn find_unary_math(UnaryOp op) {
  switch (op) {
#define SHMAP_CASE(name, ...) \
  case UnaryOp::name:         \
    return map<name##_op>;
    SHMAP_FLOAT_FUNCTIONS(SHMAP_CASE)
#undef SHMAP_CASE
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
