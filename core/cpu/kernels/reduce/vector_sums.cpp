// The sums of products of a matrix and a vector.
#include "core/cpu/kernels/reduce/vector_sums.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/base/element_type.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/reduce/vector_sums.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;

struct Bf16 {};  // tags for matrix elements of half types
struct F16 {};

// Loads whole vectors of the compute type, or the first n elements of one and zeros.
template <class Stored>
struct Elements {
  using Compute = Stored;
  using Raw = Stored;
  using D = hn::ScalableTag<Compute>;
  static HWY_INLINE hn::Vec<D> load(const Raw* p) { return hn::LoadU(D{}, p); }
  static HWY_INLINE hn::Vec<D> load_some(const Raw* p, std::size_t n) {
    return hn::MaskedLoad(hn::FirstN(D{}, n), D{}, p);
  }
};
template <class Stored>
struct HalfElements {
  using Compute = float;
  using Raw = std::uint16_t;
  using D = hn::ScalableTag<float>;
  static HWY_INLINE hn::Vec<D> load(const Raw* p) {
    if constexpr (std::is_same_v<Stored, Bf16>) {
      const hn::Rebind<std::uint16_t, D> d16;
      const hn::RebindToUnsigned<D> d32;
      return hn::BitCast(D{}, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, p))));
    } else {
      const hn::Rebind<hwy::float16_t, D> d16;
      return hn::PromoteTo(D{}, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
    }
  }
  static HWY_INLINE hn::Vec<D> load_some(const Raw* p, std::size_t n) {
    alignas(64) Raw padded[hn::MaxLanes(D{})] = {};
    std::copy_n(p, n, padded);
    return load(padded);
  }
};
template <>
struct Elements<Bf16> : HalfElements<Bf16> {};
template <>
struct Elements<F16> : HalfElements<F16> {};

// Sums kLines lines at once, each in four running vectors that are added at the end.
template <class E, int kLines>
HWY_INLINE void sum_lines(const typename E::Raw* lines, std::int64_t ld, std::int64_t k,
                          const typename E::Compute* vector, typename E::Compute* results) {
  using D = typename E::D;
  const D d;
  constexpr std::int64_t step = hn::MaxLanes(D{});
  hn::Vec<D> sum0[kLines], sum1[kLines], sum2[kLines], sum3[kLines];
  for (int r = 0; r < kLines; ++r) sum0[r] = sum1[r] = sum2[r] = sum3[r] = hn::Zero(d);
  std::int64_t l = 0;
  for (; l + 4 * step <= k; l += 4 * step) {
    const auto v0 = hn::LoadU(d, vector + l), v1 = hn::LoadU(d, vector + l + step);
    const auto v2 = hn::LoadU(d, vector + l + 2 * step), v3 = hn::LoadU(d, vector + l + 3 * step);
    for (int r = 0; r < kLines; ++r) {
      const auto* const line = lines + r * ld + l;
      sum0[r] = hn::MulAdd(E::load(line), v0, sum0[r]);
      sum1[r] = hn::MulAdd(E::load(line + step), v1, sum1[r]);
      sum2[r] = hn::MulAdd(E::load(line + 2 * step), v2, sum2[r]);
      sum3[r] = hn::MulAdd(E::load(line + 3 * step), v3, sum3[r]);
    }
  }
  for (; l + step <= k; l += step) {
    const auto v = hn::LoadU(d, vector + l);
    for (int r = 0; r < kLines; ++r) sum0[r] = hn::MulAdd(E::load(lines + r * ld + l), v, sum0[r]);
  }
  if (l < k) {
    const auto rest = static_cast<std::size_t>(k - l);
    const auto v = hn::MaskedLoad(hn::FirstN(d, rest), d, vector + l);
    for (int r = 0; r < kLines; ++r)
      sum1[r] = hn::MulAdd(E::load_some(lines + r * ld + l, rest), v, sum1[r]);
  }
  for (int r = 0; r < kLines; ++r) {
    const auto sum = hn::Add(hn::Add(sum0[r], sum1[r]), hn::Add(sum2[r], sum3[r]));
    results[r] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

template <class Stored>
void along(const VectorProduct& p, std::int64_t begin, std::int64_t count, void* results) {
  using E = Elements<Stored>;
  constexpr int kAbreast = HWY_TARGET == HWY_AVX3 ? 4 : 2;  // as many lines as there are registers
                                                            // for
  const auto* const vector = static_cast<const typename E::Compute*>(p.vector);
  auto* const out = static_cast<typename E::Compute*>(results);
  const auto* const lines = static_cast<const typename E::Raw*>(p.matrix) + begin * p.ld;
  std::int64_t i = 0;
  for (; i + kAbreast <= count; i += kAbreast)
    sum_lines<E, kAbreast>(lines + i * p.ld, p.ld, p.k, vector, out + i);
  for (; i < count; ++i) sum_lines<E, 1>(lines + i * p.ld, p.ld, p.k, vector, out + i);
}

// Adds the sum over kLines lines to out[0 … count).
template <class E, int kLines>
HWY_INLINE void add_lines(const typename E::Raw* lines, std::int64_t ld,
                          const typename E::Compute* vector, std::int64_t count,
                          typename E::Compute* out) {
  using D = typename E::D;
  const D d;
  constexpr std::int64_t step = hn::MaxLanes(D{});
  hn::Vec<D> factor[kLines];
  for (int r = 0; r < kLines; ++r) factor[r] = hn::Set(d, vector[r]);
  std::int64_t j = 0;
  for (; j + step <= count; j += step) {
    auto sum = hn::Mul(E::load(lines + j), factor[0]);
    for (int r = 1; r < kLines; ++r) sum = hn::MulAdd(E::load(lines + r * ld + j), factor[r], sum);
    hn::StoreU(hn::Add(hn::LoadU(d, out + j), sum), d, out + j);
  }
  if (j == count) return;
  const auto rest = static_cast<std::size_t>(count - j);
  auto sum = hn::Mul(E::load_some(lines + j, rest), factor[0]);
  for (int r = 1; r < kLines; ++r)
    sum = hn::MulAdd(E::load_some(lines + r * ld + j, rest), factor[r], sum);
  hn::StoreU(hn::Add(hn::LoadU(d, out + j), sum), d, out + j);  // `out` has room for whole vectors
}

template <class Stored>
void across(const VectorProduct& p, std::int64_t begin, std::int64_t count, void* results) {
  using E = Elements<Stored>;
  constexpr int kLines = 8;
  const auto* const vector = static_cast<const typename E::Compute*>(p.vector);
  auto* const out = static_cast<typename E::Compute*>(results);
  const auto* const lines = static_cast<const typename E::Raw*>(p.matrix) + begin;
  std::fill_n(out, count, typename E::Compute{0});
  std::int64_t l = 0;
  for (; l + kLines <= p.k; l += kLines)
    add_lines<E, kLines>(lines + l * p.ld, p.ld, vector + l, count, out);
  for (; l < p.k; ++l) add_lines<E, 1>(lines + l * p.ld, p.ld, vector + l, count, out);
}

template <class Stored>
constexpr VectorSums kernels_of() {
  return {along<Stored>, across<Stored>};
}
VectorSums find_sums(DType dtype) {
  return with_float(dtype, []<class T>() -> VectorSums {
    if constexpr (std::is_same_v<T, float16>)
      return kernels_of<F16>();
    else if constexpr (std::is_same_v<T, bfloat16>)
      return kernels_of<Bf16>();
    else
      return kernels_of<T>();
  });
}
#else
VectorSums find_sums(DType) { return {}; }
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_sums);
VectorSums vector_sums(DType dtype) { return SHMAP_BEST(find_sums)(dtype); }
}  // namespace shmap::cpu
#endif
