// Sums and products along rows of f32, computed in f64, four rows in a vector: the steps of one row
// depend on each other, those of different rows do not.
#include <cstddef>
#include <cstdint>

#include "core/cpu/kernels/reduce/scan_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/reduce/scan_rows.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<float, 4>;
using Wide = hn::FixedTag<double, 4>;
using V = hn::Vec<D>;

struct Sum {
  static double run(double a, double b) { return a + b; }
  static HWY_INLINE hn::Vec<Wide> run(hn::Vec<Wide> a, hn::Vec<Wide> b) { return hn::Add(a, b); }
};
struct Prod {
  static double run(double a, double b) { return a * b; }
  static HWY_INLINE hn::Vec<Wide> run(hn::Vec<Wide> a, hn::Vec<Wide> b) { return hn::Mul(a, b); }
};

// Transposes four vectors.
HWY_INLINE void turn(V& a, V& b, V& c, V& e) {
  const D d;
  const hn::FixedTag<double, 2> pairs;
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
  const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
  const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  a = hn::BitCast(d, hn::InterleaveLower(pairs, ab_low, ce_low));
  b = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_low, ce_low));
  c = hn::BitCast(d, hn::InterleaveLower(pairs, ab_high, ce_high));
  e = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_high, ce_high));
}

// Scans four elements of each of four rows, which are `pitch` elements apart. Returns the running
// results after them.
template <class Op, bool reverse>
HWY_INLINE hn::Vec<Wide> scan_square(const float* from, float* to, std::int64_t pitch,
                                     hn::Vec<Wide> running) {
  const D d;
  V a = hn::LoadU(d, from), b = hn::LoadU(d, from + pitch);
  V c = hn::LoadU(d, from + 2 * pitch), e = hn::LoadU(d, from + 3 * pitch);
  turn(a, b, c, e);
  const auto step = [&](V& column) HWY_ATTR {
    running = Op::run(running, hn::PromoteTo(Wide{}, column));
    column = hn::DemoteTo(D{}, running);
  };
  if constexpr (reverse) {
    step(e), step(c), step(b), step(a);
  } else {
    step(a), step(b), step(c), step(e);
  }
  turn(a, b, c, e);
  hn::StoreU(a, d, to);
  hn::StoreU(b, d, to + pitch);
  hn::StoreU(c, d, to + 2 * pitch);
  hn::StoreU(e, d, to + 3 * pitch);
  return running;
}

template <class Op, bool reverse>
void scan_rows(const float* from, float* to, std::int64_t len) {
  static_assert(kScanRows == 8);
  // The first element of a row is its own result; `rest` elements follow, from `begin` on.
  const std::int64_t first = reverse ? len - 1 : 0, begin = reverse ? 0 : 1, rest = len - 1;
  alignas(32) double running[kScanRows];
  for (int r = 0; r < kScanRows; ++r) {
    running[r] = static_cast<double>(from[r * len + first]);
    to[r * len + first] = from[r * len + first];
  }
  auto upper = hn::Load(Wide{}, running), lower = hn::Load(Wide{}, running + 4);
  std::int64_t i = 0;
  for (; i + 4 <= rest; i += 4) {
    const std::int64_t at = begin + (reverse ? rest - 4 - i : i);
    upper = scan_square<Op, reverse>(from + at, to + at, len, upper);
    lower = scan_square<Op, reverse>(from + 4 * len + at, to + 4 * len + at, len, lower);
  }
  hn::Store(upper, Wide{}, running);
  hn::Store(lower, Wide{}, running + 4);
  for (; i < rest; ++i) {
    const std::int64_t at = begin + (reverse ? rest - 1 - i : i);
    for (int r = 0; r < kScanRows; ++r) {
      running[r] = Op::run(running[r], static_cast<double>(from[r * len + at]));
      to[r * len + at] = static_cast<float>(running[r]);
    }
  }
}

template <class Op>
void scan_either_way(const float* from, float* to, std::int64_t len, bool reverse) {
  return reverse ? scan_rows<Op, true>(from, to, len) : scan_rows<Op, false>(from, to, len);
}
RowsScanFn find_rows_scan(Cumulative op) {
  if (op == Cumulative::cumsum) return scan_either_way<Sum>;
  if (op == Cumulative::cumprod) return scan_either_way<Prod>;
  return nullptr;
}
#else
RowsScanFn find_rows_scan(Cumulative) { return nullptr; }
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_rows_scan);
RowsScanFn rows_scan_kernel(Cumulative op) { return SHMAP_BEST(find_rows_scan)(op); }
}  // namespace shmap::cpu
#endif
