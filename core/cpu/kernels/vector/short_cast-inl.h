// Conversion of vectors of f32 to integers of 8 and 16 bits, for the .cpp files of kernels.
//
// Included after targets-inl.h, once for each instruction set.
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;

// Rounds towards 0; values beyond To's limits become these limits, since both conversions saturate,
// and NaN becomes 0. (Highway's conversion from 32 bits to unsigned 8 loses the highest bit of
// 0x8000 to 0x80FF with AVX-512, so such values are limited before.)
template <class To, class D>
HWY_INLINE hn::Vec<hn::Rebind<To, D>> to_short(D, hn::Vec<D> x) {
  static_assert(sizeof(To) <= 2);
  auto number = hn::IfThenElseZero(hn::Eq(x, x), x);
  if constexpr (sizeof(To) == 1 && !std::is_signed_v<To>)
    number = hn::Min(number, hn::Set(D{}, 255.f));
  return hn::DemoteTo(hn::Rebind<To, D>{}, hn::ConvertTo(hn::RebindToSigned<D>{}, number));
}
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
