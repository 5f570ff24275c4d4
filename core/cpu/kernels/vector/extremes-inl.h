// The functions of extremes.h for vectors of floats.
//
// Included after targets-inl.h, once for each instruction set; empty where SHMAP_VECTORS is 0.
#if SHMAP_VECTORS
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

namespace extremes_hn = hwy::HWY_NAMESPACE;

template <class V>
HWY_INLINE auto is_unordered(V a, V b) {
  return extremes_hn::Or(extremes_hn::IsNaN(a), extremes_hn::IsNaN(b));
}

// hn::Max and hn::Min return their second operand unless the first is larger (smaller). The two
// orders thus differ only where both are zeros, or one is a NaN, which the sum then is too.
template <class V>
HWY_INLINE V larger(V a, V b) {
  const V both = extremes_hn::And(extremes_hn::Max(a, b), extremes_hn::Max(b, a));
  return extremes_hn::IfThenElse(is_unordered(a, b), extremes_hn::Add(a, b), both);
}
template <class V>
HWY_INLINE V smaller(V a, V b) {
  const V either = extremes_hn::Or(extremes_hn::Min(a, b), extremes_hn::Min(b, a));
  return extremes_hn::IfThenElse(is_unordered(a, b), extremes_hn::Add(a, b), either);
}

#if HWY_TARGET == HWY_AVX3
// vrange takes -0 for less than 0, and ignores one NaN: three instructions, as many as hn::Max with
// a test for a NaN.
constexpr int kSmaller = 4, kLarger = 5;  // the sign is that of the chosen operand
template <int choice>
HWY_INLINE extremes_hn::Vec512<float> extreme(extremes_hn::Vec512<float> a,
                                              extremes_hn::Vec512<float> b) {
  const __m512 chosen = _mm512_range_ps(a.raw, b.raw, choice);
  const __mmask16 unordered = _mm512_cmp_ps_mask(a.raw, b.raw, _CMP_UNORD_Q);
  return extremes_hn::Vec512<float>{_mm512_mask_add_ps(chosen, unordered, a.raw, b.raw)};
}
template <int choice>
HWY_INLINE extremes_hn::Vec512<double> extreme(extremes_hn::Vec512<double> a,
                                               extremes_hn::Vec512<double> b) {
  const __m512d chosen = _mm512_range_pd(a.raw, b.raw, choice);
  const __mmask8 unordered = _mm512_cmp_pd_mask(a.raw, b.raw, _CMP_UNORD_Q);
  return extremes_hn::Vec512<double>{_mm512_mask_add_pd(chosen, unordered, a.raw, b.raw)};
}
template <class T>
HWY_INLINE extremes_hn::Vec512<T> larger(extremes_hn::Vec512<T> a, extremes_hn::Vec512<T> b) {
  return extreme<kLarger>(a, b);
}
template <class T>
HWY_INLINE extremes_hn::Vec512<T> smaller(extremes_hn::Vec512<T> a, extremes_hn::Vec512<T> b) {
  return extreme<kSmaller>(a, b);
}
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
