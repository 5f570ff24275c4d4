// Compresses vectors of 32-bit lanes, for the .cpp files that keep some of many items.
//
// Included after targets-inl.h, once for each instruction set.
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
#if HWY_TARGET == HWY_AVX2
// For each mask of eight lanes: the indices of the lanes that are set, in ascending order, then
// zeros.
constexpr std::array<std::uint8_t, 256 * 8> make_lanes_kept() {
  std::array<std::uint8_t, 256 * 8> lanes = {};
  for (std::size_t mask = 0; mask < 256; ++mask)
    for (std::size_t lane = 0, kept = 0; lane < 8; ++lane)
      if (mask >> lane & 1) lanes[mask * 8 + kept++] = static_cast<std::uint8_t>(lane);
  return lanes;
}
alignas(64) constexpr std::array<std::uint8_t, 256 * 8> kLanesKept = make_lanes_kept();
#endif

// The lanes to keep of vectors of D, which have eight or sixteen lanes.
template <class D>
struct KeptLanes {
  using Mask = hwy::HWY_NAMESPACE::Mask<D>;
  using V = hwy::HWY_NAMESPACE::Vec<D>;
  static_assert(sizeof(hwy::HWY_NAMESPACE::TFromD<D>) == 4);

#if HWY_TARGET == HWY_AVX2
  // hn::Compress has its table in a local variable, which GCC copies to the stack (1 KiB) in each
  // call.
  HWY_INLINE explicit KeptLanes(Mask mask) {
    namespace hn = hwy::HWY_NAMESPACE;
    static_assert(hn::MaxLanes(D{}) == 8);
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(D{}, mask, bits);
    const hn::RebindToSigned<D> d;
    const hn::Rebind<std::uint8_t, D> bytes;
    count = static_cast<std::int64_t>(hwy::PopCount(bits[0]));
    lanes = hn::IndicesFromVec(
        D{}, hn::PromoteTo(d, hn::LoadU(bytes, kLanesKept.data() + std::size_t{bits[0]} * 8)));
  }
  // Moves the kept lanes of v to the front, in order; the lanes after them are unspecified.
  HWY_INLINE V compressed(V v) const { return hwy::HWY_NAMESPACE::TableLookupLanes(v, lanes); }
  decltype(hwy::HWY_NAMESPACE::IndicesFromVec(
      D{}, hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::RebindToSigned<D>>{})) lanes;
#else
  HWY_INLINE explicit KeptLanes(Mask m)
      : mask(m), count(static_cast<std::int64_t>(hwy::HWY_NAMESPACE::CountTrue(D{}, m))) {}
  HWY_INLINE V compressed(V v) const { return hwy::HWY_NAMESPACE::Compress(v, mask); }
  Mask mask;
#endif
  std::int64_t count;
};
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
