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

// Giles' approximation of single precision: polynomials in w = -log(1 - x^2), about 2.5, and in
// sqrt(w), about 3, in the tails.
inline constexpr int kErfInvTerms = 9;
inline constexpr double kErfInvCentre[kErfInvTerms] = {
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
inline constexpr double kErfInvTail[kErfInvTerms] = {-0.000200214257, 0.000100950558, 0.00134934322,
                                                     -0.00367342844,  0.00573950773,  -0.0076224613,
                                                     0.00943887047,   1.00167406,     2.83297682};

#if SHMAP_MATH_F64
// A start of a few digits, then Halley's steps on erf(y) = x, or on erfc in the tails, where erf
// has lost its digits.
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
struct erf_inv_op;  // an element at a time
template <>
void map<erf_inv_op>(const void* in, void* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    static_cast<double*>(out)[i] = erf_inv(static_cast<const double*>(in)[i]);
}
#elif SHMAP_VECTOR_MATH
// -log(1 + f) - 2.5 for |f| <= 1/3, from its values at Chebyshev's nodes, the highest power first:
// off by 4e-8, of which a sixth is left in erf_inv's result.
inline constexpr float kErfInvLog[] = {0.157655478f,  -0.175025418f, 0.163322672f,
                                       -0.197189406f, 0.250136197f,  -0.333422154f,
                                       0.499998093f,  -0.999999225f, -2.5f};

struct erf_inv_op {
  static HWY_INLINE V run(V x) {
    const D d;
    const Int ints;
    const V one = hn::Set(d, 1.f);
    // The logarithm of 2^e (1 + f): only an absolute error matters, which the library's function
    // spends two thirds of the time of all this to make a relative one.
    const V y = hn::Mul(hn::Sub(one, x), hn::Add(one, x));
    constexpr std::int32_t kTwoThirds = 0x3f2aaaab;
    const auto from_there = hn::Sub(hn::BitCast(ints, y), hn::Set(ints, kTwoThirds));
    const auto fraction = hn::And(from_there, hn::Set(ints, 0x7fffff));
    const V f = hn::Sub(hn::BitCast(d, hn::Add(fraction, hn::Set(ints, kTwoThirds))), one);
    V log = hn::Set(d, kErfInvLog[0]);
    for (std::size_t k = 1; k < std::size(kErfInvLog); ++k)
      log = hn::MulAdd(log, f, hn::Set(d, kErfInvLog[k]));
    const V e = hn::ConvertTo(d, hn::ShiftRight<23>(from_there));
    const V from_centre = hn::NegMulAdd(e, hn::Set(d, 0.693147181f), log);  // w - 2.5
    // Of uniform numbers one in 300 is in the tail: most vectors need neither its terms nor the
    // root. Nor is there an infinity or NaN among numbers of the centre (w < 5: y > e^-5).
    const auto centre = hn::Gt(y, hn::Set(d, 6.7379470e-3f));
    if (hn::AllTrue(d, centre)) [[likely]] {
      V p = hn::Set(d, static_cast<float>(kErfInvCentre[0]));
      for (int k = 1; k < kErfInvTerms; ++k)
        p = hn::MulAdd(p, from_centre, hn::Set(d, static_cast<float>(kErfInvCentre[k])));
      return hn::Mul(p, x);
    }
    const V w = hn::Add(from_centre, hn::Set(d, 2.5f));
    const V t = hn::IfThenElse(centre, from_centre, hn::Sub(hn::Sqrt(w), hn::Set(d, 3.f)));
    V p = hn::Zero(d);
    for (int k = 0; k < kErfInvTerms; ++k) {
      p = hn::MulAdd(p, t,
                     hn::IfThenElse(centre, hn::Set(d, static_cast<float>(kErfInvCentre[k])),
                                    hn::Set(d, static_cast<float>(kErfInvTail[k]))));
    }
    // Of -1 and 1 the integers above are no logarithm, nor are those of a negative y.
    const V infinity = hn::CopySign(hn::Set(d, HUGE_VALF), x);
    const V result = hn::IfThenElse(hn::Eq(hn::Abs(x), one), infinity, hn::Mul(p, x));
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
