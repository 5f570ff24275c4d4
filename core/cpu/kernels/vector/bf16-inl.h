// Vectors of bf16 values, for the .cpp files of kernels that compute them in f32.
//
// Included after targets-inl.h, once for each instruction set; empty where SHMAP_VECTORS is 0.
#if SHMAP_VECTORS
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

namespace bf16_hn = hwy::HWY_NAMESPACE;
using WideTag = bf16_hn::ScalableTag<float>;                // the dtype of the arithmetic
using NarrowTag = bf16_hn::Rebind<std::uint16_t, WideTag>;  // the same values in memory

HWY_INLINE bf16_hn::Vec<WideTag> widened_bf16(bf16_hn::Vec<NarrowTag> x) {
  const bf16_hn::RebindToUnsigned<WideTag> bits;
  return bf16_hn::BitCast(WideTag{}, bf16_hn::ShiftLeft<16>(bf16_hn::PromoteTo(bits, x)));
}

// Rounds to the nearest bf16 value, ties to even; a NaN becomes a quiet NaN with its upper bits.
HWY_INLINE bf16_hn::Vec<NarrowTag> narrowed_bf16(bf16_hn::Vec<WideTag> x) {
  const WideTag d;
  const bf16_hn::RebindToUnsigned<WideTag> du;
  const bf16_hn::RebindToSigned<WideTag> di;
  const auto f = bf16_hn::BitCast(du, x);
  const auto high = bf16_hn::ShiftRight<16>(f);
  const auto even = bf16_hn::Add(f, bf16_hn::And(high, bf16_hn::Set(du, 1)));
  const auto rounded = bf16_hn::ShiftRight<16>(bf16_hn::Add(even, bf16_hn::Set(du, 0x7fff)));
  const auto quiet = bf16_hn::Or(high, bf16_hn::Set(du, 0x40));
  const auto bits = bf16_hn::IfThenElse(bf16_hn::IsNaN(x), bf16_hn::BitCast(d, quiet),
                                        bf16_hn::BitCast(d, rounded));
  // The bits are below 2^16, so that nothing saturates.
  return bf16_hn::DemoteTo(NarrowTag{}, bf16_hn::BitCast(di, bits));
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
