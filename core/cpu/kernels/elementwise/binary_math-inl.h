// pow and atan2 of one float type, `Real`, for binary_math_f32.cpp and its f64 twin.
//
// Included after pow-inl.h, once for each instruction set.
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTOR_MATH
// A partial vector takes the same path, so that a result does not depend on its position; the
// unused lanes repeat an element.
template <class Op>
void map(const void* a, bool a_scalar, const void* b, bool b_scalar, void* out, std::int64_t n) {
  const D d;
  constexpr std::int64_t lanes = hn::MaxLanes(D{});
  if (n <= 0) return;
  const Real* x = static_cast<const Real*>(a);
  const Real* y = static_cast<const Real*>(b);
  Real* o = static_cast<Real*>(out);
  const V x_all = hn::Set(d, *x), y_all = hn::Set(d, *y);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(
        Op::run(a_scalar ? x_all : hn::LoadU(d, x + i), b_scalar ? y_all : hn::LoadU(d, y + i)), d,
        o + i);
  }
  if (i == n) return;
  const auto mask = hn::FirstN(d, static_cast<std::size_t>(n - i));
  const V x_rest =
      a_scalar ? x_all : hn::IfThenElse(mask, hn::MaskedLoad(mask, d, x + i), hn::Set(d, x[i]));
  const V y_rest =
      b_scalar ? y_all : hn::IfThenElse(mask, hn::MaskedLoad(mask, d, y + i), hn::Set(d, y[i]));
  hn::BlendedStore(Op::run(x_rest, y_rest), mask, d, o + i);
}

#if !SHMAP_OWN_POW
SHMAP_VECTOR_FUNCTION_2(Pow, pow)
#endif
SHMAP_VECTOR_FUNCTION_2(Atan2, atan2)
#else
template <class Op>
void map(const void* a, bool a_scalar, const void* b, bool b_scalar, void* out, std::int64_t n) {
  map_binary<Op, Real>(a, a_scalar, b, b_scalar, out, n);
}
struct Pow {
  static Real run(Real a, Real b) { return std::pow(a, b); }
};
struct Atan2 {
  static Real run(Real a, Real b) { return std::atan2(a, b); }
};
#endif

BinaryFn find_binary_math(BinaryOp op) {
  if (op == BinaryOp::pow) return map<Pow>;
  if (op == BinaryOp::atan2) return map<Atan2>;
  return nullptr;
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
