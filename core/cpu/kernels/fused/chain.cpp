#include "core/cpu/kernels/fused/chain.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/base/element_type.h"
#include "core/cpu/kernels/elementwise/vector_call.h"
#include "core/cpu/kernels/fused/chain_divisor.h"
#include "core/cpu/kernels/reduce/reduce_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/fused/chain.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#undef SHMAP_MATH_F64
#define SHMAP_MATH_F64 0
#include "core/cpu/kernels/elementwise/vector_math-inl.h"
//
#include "core/cpu/kernels/elementwise/exp-inl.h"
//
#include "core/cpu/kernels/reduce/reduce_ops-inl.h"
//
#include "core/cpu/kernels/fused/chain_vectors-inl.h"
//
#include "core/cpu/kernels/fused/chain_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
// The order of a group's elements in its eight vectors: the order in memory, or pairs of vectors as
// load_pair makes them. Pairs are used only if no operation reads another array.
enum class Lanes : std::uint8_t { in_order, in_pairs };
// In bf16 values: a cache line, and how far ahead pairs are prefetched. (Measured on Zen 5: a sum
// of squares took 178 us without prefetches, 160 us with them; twice and four times as far: 163,
// 166.)
constexpr std::int64_t kLine = 32, kAhead = 512;

// Stores the eight vectors of a group, past the caches if `around`.
template <class T, bool around>
struct Stores {
  using X = Vector<T>;
  Destination<T> out;
  HWY_INLINE void group(std::int64_t i, X a0, X a1, X a2, X a3, X a4, X a5, X a6, X a7) {
    const auto put = [&](X a, std::int64_t k) HWY_ATTR {
      if constexpr (around)
        hn::Stream(a, Tag<T>{}, static_cast<T*>(out.at) + i + k * kStep);
      else
        hn::StoreU(a, Tag<T>{}, static_cast<T*>(out.at) + i + k * kStep);
    };
    const auto narrow = [&](X a, std::int64_t k) HWY_ATTR { out.store(a, i + k * kStep); };
    if (around || out.narrows == ChainCode::none) {
      put(a0, 0), put(a1, 1), put(a2, 2), put(a3, 3);
      put(a4, 4), put(a5, 5), put(a6, 6), put(a7, 7);
      return;
    }
    if constexpr (std::is_same_v<T, float>) {
      const auto halves = [&](hn::Vec<Halves> a, std::int64_t k) HWY_ATTR {
        hn::StoreU(a, Halves{}, static_cast<std::uint16_t*>(out.at) + i + 2 * k * kStep);
      };
      const bool rounds = out.narrows == ChainCode::to_bf16;
      if (rounds && !any_subnormal(a0, a1, a2, a3, a4, a5, a6, a7)) {
        halves(nearest_halves(a0, a1), 0), halves(nearest_halves(a2, a3), 1);
        halves(nearest_halves(a4, a5), 2), halves(nearest_halves(a6, a7), 3);
        return;
      }
      if (rounds) {
        a0 = to_bf16(a0), a1 = to_bf16(a1), a2 = to_bf16(a2), a3 = to_bf16(a3);
        a4 = to_bf16(a4), a5 = to_bf16(a5), a6 = to_bf16(a6), a7 = to_bf16(a7);
      }
      if (rounds || out.narrows == ChainCode::narrow) {
        halves(upper_halves(a0, a1), 0), halves(upper_halves(a2, a3), 1);
        halves(upper_halves(a4, a5), 2), halves(upper_halves(a6, a7), 3);
        return;
      }
    }
    narrow(a0, 0), narrow(a1, 1), narrow(a2, 2), narrow(a3, 3);
    narrow(a4, 4), narrow(a5, 5), narrow(a6, 6), narrow(a7, 7);
  }
};

// Reduces in the order of reduce_floats, in kLanes running results. Vector k of a group is combined
// with the results from k * kStep on.
template <class Op>
struct Folds {
  static constexpr int kVectors = static_cast<int>(kLanes<float> / kStep);
  static_assert(kVectors == 4 || kVectors == 8);
  V s0, s1, s2, s3, s4, s5, s6, s7;  // s4 to s7 are used with eight vectors only
  HWY_INLINE explicit Folds(float neutral) {
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = hn::Set(D{}, neutral);
  }
  HWY_INLINE void group(std::int64_t, V a0, V a1, V a2, V a3, V a4, V a5, V a6, V a7) {
    s0 = Op::vector(s0, a0), s1 = Op::vector(s1, a1);
    s2 = Op::vector(s2, a2), s3 = Op::vector(s3, a3);
    if constexpr (kVectors == 4) {
      s0 = Op::vector(s0, a4), s1 = Op::vector(s1, a5);
      s2 = Op::vector(s2, a6), s3 = Op::vector(s3, a7);
    } else {
      s4 = Op::vector(s4, a4), s5 = Op::vector(s5, a5);
      s6 = Op::vector(s6, a6), s7 = Op::vector(s7, a7);
    }
  }
  HWY_INLINE void one(int k, V a) {
    switch (k % kVectors) {
      case 0:
        s0 = Op::vector(s0, a);
        break;
      case 1:
        s1 = Op::vector(s1, a);
        break;
      case 2:
        s2 = Op::vector(s2, a);
        break;
      case 3:
        s3 = Op::vector(s3, a);
        break;
      case 4:
        s4 = Op::vector(s4, a);
        break;
      case 5:
        s5 = Op::vector(s5, a);
        break;
      case 6:
        s6 = Op::vector(s6, a);
        break;
      default:
        s7 = Op::vector(s7, a);
        break;
    }
  }
  // Returns the same value as total() if the vectors are in pairs. The vectors with odd numbers
  // hold the elements with odd indices, which total() would combine in its last step.
  HWY_INLINE float total_of_pairs() {
    if constexpr (kVectors == 8) {
      s0 = Op::vector(s0, s4), s1 = Op::vector(s1, s5);
      s2 = Op::vector(s2, s6), s3 = Op::vector(s3, s7);
    }
    return Op::run(fold_lanes<Op>(D{}, Op::vector(s0, s2)),
                   fold_lanes<Op>(D{}, Op::vector(s1, s3)));
  }
  HWY_INLINE float total() {
    if constexpr (kVectors == 8) {
      s0 = Op::vector(s0, s4), s1 = Op::vector(s1, s5);
      s2 = Op::vector(s2, s6), s3 = Op::vector(s3, s7);
    }
    return fold_lanes<Op>(D{}, Op::vector(Op::vector(s0, s2), Op::vector(s1, s3)));
  }
};

// Reduces a group of which only `count` elements exist, in pairs; the others become neutral.
template <class Op>
struct SomePairs {
  Folds<Op> folds;
  std::int64_t count;
  HWY_INLINE V some(int k, V a) const {  // replaces the missing elements of vector k
    const std::int64_t here = (count - k / 2 * 2 * kStep + 1 - k % 2) / 2;
    const auto lanes = static_cast<std::size_t>(std::clamp<std::int64_t>(here, 0, kStep));
    return hn::IfThenElse(hn::FirstN(D{}, lanes), a, hn::Set(D{}, static_cast<float>(Op::neutral)));
  }
  HWY_INLINE void group(std::int64_t i, V a0, V a1, V a2, V a3, V a4, V a5, V a6, V a7) {
    folds.group(i, some(0, a0), some(1, a1), some(2, a2), some(3, a3), some(4, a4), some(5, a5),
                some(6, a6), some(7, a7));
  }
};

// Runs elements [begin, end), which are whole groups. There is one jump for each operation and
// group.
template <class T, bool keeps, bool heavy, Lanes lanes, class Sink>
void run_groups_of(const ChainOp* ops, int count, Source<T> in, Sink& to, std::int64_t begin,
                   std::int64_t end) {
  Sink sink = to;
  alignas(64) T kept[keeps ? kGroup : 1];
  for (std::int64_t i = begin; i < end; i += kGroup) {
    Vector<T> a0, a1, a2, a3, a4, a5, a6, a7;
    if constexpr (lanes == Lanes::in_pairs) {
      const auto* const at = static_cast<const std::uint16_t*>(in.at) + i;
      for (std::int64_t line = 0; line < kGroup; line += kLine)
        __builtin_prefetch(at + kAhead + line);
      const Pair p0 = load_pair(at), p1 = load_pair(at + 2 * kStep);
      const Pair p2 = load_pair(at + 4 * kStep), p3 = load_pair(at + 6 * kStep);
      a0 = p0.even, a1 = p0.odd, a2 = p1.even, a3 = p1.odd;
      a4 = p2.even, a5 = p2.odd, a6 = p3.even, a7 = p3.odd;
    } else {
      a0 = in.load(i), a1 = in.load(i + kStep);
      a2 = in.load(i + 2 * kStep), a3 = in.load(i + 3 * kStep);
      a4 = in.load(i + 4 * kStep), a5 = in.load(i + 5 * kStep);
      a6 = in.load(i + 6 * kStep), a7 = in.load(i + 7 * kStep);
    }
    for (const ChainOp* op = ops; op != ops + count; ++op)
      apply<T, keeps, heavy>(*op, i, kept, a0, a1, a2, a3, a4, a5, a6, a7);
    sink.group(i, a0, a1, a2, a3, a4, a5, a6, a7);
  }
  to = sink;
}
template <class T, bool keeps, Lanes lanes = Lanes::in_order, class Sink>
void run_groups(const ChainOp* ops, int count, Source<T> in, Sink& to, std::int64_t begin,
                std::int64_t end) {
  if (std::any_of(ops, ops + count, [](const ChainOp& op) { return is_heavy(op.code); }))
    return run_groups_of<T, keeps, true, lanes>(ops, count, in, to, begin, end);
  run_groups_of<T, keeps, false, lanes>(ops, count, in, to, begin, end);
}

// Runs kVectors vectors at `i`, or the first `m` elements of one vector. Used for the elements of a
// call beyond its whole groups, and for short rows. There is one jump for each operation.
template <class T, int kVectors, bool whole, class X = Vector<T>>
HWY_INLINE void run_vectors(const ChainOp* ops, int count, Source<T> in, std::int64_t i,
                            std::size_t m, X (&a)[kVectors]) {
  const Tag<T> d;
  const auto mask = hn::FirstN(d, m);
  const auto load = [&](const T* from, std::int64_t k) HWY_ATTR {
    if constexpr (whole)
      return hn::LoadU(d, from + i + k * kStep);
    else
      return hn::MaskedLoad(mask, d, from + i);
  };
  X kept[kVectors];
  for (int k = 0; k < kVectors; ++k)
    a[k] = kept[k] = whole ? in.load(i + k * kStep) : in.load_some(i, m);
  for (const ChainOp* op = ops; op != ops + count; ++op) apply<T>(*op, load, kept, a);
}

// Calls each(number, position, vector) for the whole vectors from i on, several at a time. Returns
// the position from which less than a vector is left.
template <class T, class Each>
HWY_INLINE std::int64_t run_whole_vectors(const ChainOp* ops, int count, Source<T> in,
                                          std::int64_t i, std::int64_t end, Each each) {
  int n = 0;
  for (; i + 4 * kStep <= end; i += 4 * kStep) {
    Vector<T> a[4];
    run_vectors<T, 4, true>(ops, count, in, i, kStep, a);
    for (int k = 0; k < 4; ++k) each(n++, i + k * kStep, a[k]);
  }
  for (; i + kStep <= end; i += kStep) {
    Vector<T> a[1];
    run_vectors<T, 1, true>(ops, count, in, i, kStep, a);
    each(n++, i, a[0]);
  }
  return i;
}

// Runs the first `m` elements of one vector at `i`.
template <class T>
HWY_INLINE void run_some(const ChainOp* ops, int count, Source<T> in, Destination<T> out,
                         std::int64_t i, std::int64_t m) {
  const auto lanes = static_cast<std::size_t>(m);
  Vector<T> a[1];
  run_vectors<T, 1, false>(ops, count, in, i, lanes, a);
  out.store_some(a[0], i, lanes);
}

// Stores whole vectors past the caches. Apart from run(), which short rows call often.
template <class T>
HWY_NOINLINE void run_around(const ChainOp* ops, int count, Source<T> in, T* to, std::int64_t n) {
  const Destination<T> out{to, ChainCode::none};
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) / sizeof(T));
  const std::int64_t head = std::min(n, -past & (kStep - 1));
  if (head > 0) run_some<T>(ops, count, in, out, 0, head);
  const std::int64_t groups_end = head + (n - head) / kGroup * kGroup;
  Stores<T, true> sink{out};
  run_groups<T, true>(ops, count, in, sink, head, groups_end);
  const std::int64_t i = run_whole_vectors<T>(ops, count, in, groups_end, n,
                                              [=](int, std::int64_t at, Vector<T> a)
                                                  HWY_ATTR { hn::Stream(a, Tag<T>{}, to + at); });
  if (i < n) run_some<T>(ops, count, in, out, i, n - i);
}

bool rounds_to_bf16(ChainCode code) {
  return code == ChainCode::to_bf16 || code == ChainCode::quiet_to_bf16;
}

template <class T>
void run(const ChainOp* ops, int count, const void* from, void* to, bool around, std::int64_t n) {
  const Source<T> in{from, count > 0 && ops[0].code == ChainCode::widen};
  const bool narrows = count > 0 && ends_chain(ops[count - 1].code);
  Destination<T> out{to, narrows ? ops[count - 1].code : ChainCode::none};
  if (narrows) --count;
  if (in.half) ++ops, --count;
  if (out.narrows == ChainCode::narrow && count > 0 && rounds_to_bf16(ops[count - 1].code) &&
      rounds_to_halves()) {
    out.narrows = ChainCode::to_bf16;
    --count;
  }
  if (around && !narrows) return run_around<T>(ops, count, in, static_cast<T*>(to), n);
  const std::int64_t whole = n / kGroup * kGroup;
  if (whole > 0) {
    Stores<T, false> sink{out};
    run_groups<T, true>(ops, count, in, sink, 0, whole);
  }
  const std::int64_t i =
      run_whole_vectors<T>(ops, count, in, whole, n,
                           [&](int, std::int64_t at, Vector<T> a) HWY_ATTR { out.store(a, at); });
  if (i < n) run_some<T>(ops, count, in, out, i, n - i);
}

// Reduces a piece of a row, as reduce_floats does.
template <class Op>
float fold_piece(const ChainOp* ops, int count, Source<float> in, std::int64_t begin,
                 std::int64_t n) {
  constexpr auto neutral = static_cast<float>(Op::neutral);
  Folds<Op> folds(neutral);
  const std::int64_t end = begin + n, whole = begin + n / kGroup * kGroup;
  if (begin < whole) run_groups<float, false>(ops, count, in, folds, begin, whole);
  int next = 0;
  const std::int64_t i =
      run_whole_vectors<float>(ops, count, in, whole, end, [&](int k, std::int64_t, V a) HWY_ATTR {
        folds.one(k, a);
        next = k + 1;
      });
  if (i < end) {
    const auto rest = static_cast<std::size_t>(end - i);
    V a[1];
    run_vectors<float, 1, false>(ops, count, in, i, rest, a);
    folds.one(next, hn::IfThenElse(hn::FirstN(D{}, rest), a[0], hn::Set(D{}, neutral)));
  }
  return folds.total();
}

// Does the same as fold_piece for bf16 values that are loaded in pairs.
template <class Op>
float fold_pairs(const ChainOp* ops, int count, Source<float> in, std::int64_t begin,
                 std::int64_t n) {
  Folds<Op> folds(static_cast<float>(Op::neutral));
  const std::int64_t end = begin + n, whole = begin + n / kGroup * kGroup;
  if (begin < whole) run_groups<float, false, Lanes::in_pairs>(ops, count, in, folds, begin, whole);
  if (whole < end) {  // uses a copy that is a whole group
    alignas(64) std::uint16_t rest[kGroup] = {};
    std::memcpy(rest, static_cast<const std::uint16_t*>(in.at) + whole,
                static_cast<std::size_t>(end - whole) * sizeof(rest[0]));
    SomePairs<Op> some{folds, end - whole};
    run_groups<float, false, Lanes::in_pairs>(ops, count, Source<float>{rest, true}, some, 0,
                                              kGroup);
    folds = some.folds;
  }
  return folds.total_of_pairs();
}

bool reads_arrays(const ChainOp* ops, int count) {
  return std::any_of(ops, ops + count, [](const ChainOp& op) {
    return op.form == ChainForm::vector || op.form == ChainForm::vector_first;
  });
}

// Combines the pieces of a long row in a balanced tree, as reduce_kernel does.
template <class Op>
void fold_row(const ChainOp* ops, int count, const void* from, float* out, std::int64_t n) {
  constexpr std::int64_t kPiece = ReduceScratch::kPiece;
  const Source<float> in{from, count > 0 && ops[0].code == ChainCode::widen};
  if (in.half) ++ops, --count;
  // The copy of the last group pays only if there are at least a few groups.
  const bool in_pairs = in.half && n >= 4 * kGroup && !reads_arrays(ops, count);
  const auto fold_some = in_pairs ? fold_pairs<Op> : fold_piece<Op>;
  if (n <= kPiece) {
    *out = fold_some(ops, count, in, 0, n);
    return;
  }
  float sums[64];
  int depth = 0;
  std::uint64_t pieces = 0;
  for (std::int64_t i = 0; i < n; i += kPiece) {
    sums[depth++] = fold_some(ops, count, in, i, std::min(kPiece, n - i));
    for (std::uint64_t bit = ++pieces; bit % 2 == 0; bit /= 2, --depth)
      sums[depth - 2] = Op::run(sums[depth - 2], sums[depth - 1]);
  }
  for (; depth > 1; --depth) sums[depth - 2] = Op::run(sums[depth - 2], sums[depth - 1]);
  *out = sums[0];
}

ChainFoldFn find_fold(Reduction op) {
  switch (op) {
    case Reduction::sum:
      return fold_row<Sum>;
    case Reduction::max:
      return fold_row<Max>;
    default:
      return nullptr;
  }
}

ChainFn find_chain(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return run<float>;
    case DType::i32:
      return run<std::int32_t>;
    case DType::u32:
      return run<std::uint32_t>;
    default:
      return nullptr;
  }
}
#else
ChainFn find_chain(DType) { return nullptr; }
ChainFoldFn find_fold(Reduction) { return nullptr; }
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_chain);
SHMAP_KERNELS(find_fold);
ChainFn chain_kernel(DType dtype) { return SHMAP_BEST(find_chain)(dtype); }
ChainFoldFn chain_fold_kernel(Reduction op) { return SHMAP_BEST(find_fold)(op); }
}  // namespace shmap::cpu
#endif
