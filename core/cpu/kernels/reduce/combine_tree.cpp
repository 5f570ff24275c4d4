// Elementwise trees over 2, 4, 8 and 16 arrays.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/base/element_type.h"
#include "core/base/reduction_domain.h"
#include "core/base/thread_kept.h"
#include "core/cpu/kernels/reduce/reduce_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/reduce/combine_tree.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/reduce/reduce_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// The stored type of a value: T itself, or the upper half of a float's bits.
struct Bf16 {
  std::uint16_t bits;
};
// An element whose square is the value.
template <class T>
struct Squared {
  T root;
};
template <class T>
T wide(T x) {
  return x;
}
template <class T>
T wide(Squared<T> x) {
  return x.root * x.root;
}
inline float wide(Bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

template <class Op, class T, class In>
void tree2(const void* const* in, void* out, std::int64_t n) {
  const In* a = static_cast<const In*>(in[0]);
  const In* b = static_cast<const In*>(in[1]);
  T* o = static_cast<T*>(out);
  SHMAP_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) o[i] = Op::run(wide(a[i]), wide(b[i]));
}
template <class Op, class T, class In>
void tree4(const void* const* in, void* out, std::int64_t n) {
  const In* a = static_cast<const In*>(in[0]);
  const In* b = static_cast<const In*>(in[1]);
  const In* c = static_cast<const In*>(in[2]);
  const In* d = static_cast<const In*>(in[3]);
  T* o = static_cast<T*>(out);
  SHMAP_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    o[i] = Op::run(Op::run(wide(a[i]), wide(b[i])), Op::run(wide(c[i]), wide(d[i])));
  }
}
template <class Op, class T, class In>
void tree8(const void* const* in, void* out, std::int64_t n) {
  const In* a = static_cast<const In*>(in[0]);
  const In* b = static_cast<const In*>(in[1]);
  const In* c = static_cast<const In*>(in[2]);
  const In* d = static_cast<const In*>(in[3]);
  const In* e = static_cast<const In*>(in[4]);
  const In* f = static_cast<const In*>(in[5]);
  const In* g = static_cast<const In*>(in[6]);
  const In* h = static_cast<const In*>(in[7]);
  T* o = static_cast<T*>(out);
  SHMAP_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    o[i] = Op::run(Op::run(Op::run(wide(a[i]), wide(b[i])), Op::run(wide(c[i]), wide(d[i]))),
                   Op::run(Op::run(wide(e[i]), wide(f[i])), Op::run(wide(g[i]), wide(h[i]))));
  }
}
template <class Op, class T, class In>
void tree16(const void* const* in, void* out, std::int64_t n) {
  alignas(64) T half[256];
  for (std::int64_t i = 0; i < n; i += 256) {
    const std::int64_t m = std::min<std::int64_t>(256, n - i);
    const void* rows[16];
    for (int j = 0; j < 16; ++j) rows[j] = static_cast<const In*>(in[j]) + i;
    T* const o = static_cast<T*>(out) + i;
    tree8<Op, T, In>(rows + 8, half, m);
    tree8<Op, T, In>(rows, o, m);
    const void* const both[2] = {o, half};
    tree2<Op, T, T>(both, o, m);
  }
}

#if SHMAP_VECTORS
// Loads a whole vector of the float type from the stored type.
template <class T>
requires std::is_floating_point_v<T> HWY_INLINE hn::Vec<hn::ScalableTag<T>> load_wide(const T* p) {
  return hn::LoadU(hn::ScalableTag<T>{}, p);
}
template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<T>> load_wide(const Squared<T>* p) {
  const auto x = hn::LoadU(hn::ScalableTag<T>{}, reinterpret_cast<const T*>(p));
  return hn::Mul(x, x);
}
HWY_INLINE hn::Vec<hn::ScalableTag<float>> load_wide(const Bf16* p) {
  using D = hn::ScalableTag<float>;
  const hn::Rebind<std::uint16_t, D> narrow;
  const hn::RebindToUnsigned<D> bits;
  const auto x = hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(D{}, hn::ShiftLeft<16>(hn::PromoteTo(bits, x)));
}

// The result of the tree over `k` arrays for elements [i, i + lanes).
template <class Op, int k, class In>
HWY_INLINE auto tree_of(const In* const* in, std::int64_t i) {
  if constexpr (k == 1)
    return load_wide(in[0] + i);
  else
    return Op::vector(tree_of<Op, k / 2>(in, i), tree_of<Op, k / 2>(in + k / 2, i));
}
template <class Op, int k, class In>
auto one_of(const In* const* in, std::int64_t i) {
  if constexpr (k == 1)
    return wide(in[0][i]);
  else
    return Op::run(one_of<Op, k / 2>(in, i), one_of<Op, k / 2>(in + k / 2, i));
}

// Float trees use explicit vectors: a compiler would nest the NaN tests of each level of the tree
// in the cases of the level below.
template <class Op, class T, class In, int k>
void float_tree(const void* const* in, void* out, std::int64_t n) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t lanes = hn::MaxLanes(hn::ScalableTag<T>{});
  const In* rows[k];
  for (int j = 0; j < k; ++j) rows[j] = static_cast<const In*>(in[j]);
  T* o = static_cast<T*>(out);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(tree_of<Op, k>(rows, i), d, o + i);
  for (; i < n; ++i) o[i] = one_of<Op, k>(rows, i);
}
#endif

template <class Op, class T, class In = T>
TreeFn pick(int k) {
#if SHMAP_VECTORS
  if constexpr (std::is_floating_point_v<T>) {
    return k == 2    ? float_tree<Op, T, In, 2>
           : k == 4  ? float_tree<Op, T, In, 4>
           : k == 8  ? float_tree<Op, T, In, 8>
           : k == 16 ? float_tree<Op, T, In, 16>
                     : nullptr;
  }
#endif
  return k == 2    ? tree2<Op, T, In>
         : k == 4  ? tree4<Op, T, In>
         : k == 8  ? tree8<Op, T, In>
         : k == 16 ? tree16<Op, T, In>
                   : nullptr;
}

TreeFn find_bf16_tree(Reduction op, int k) {
  return with_reduction<float>(op, [k]<class Op, class T>() { return pick<Op, float, Bf16>(k); });
}

TreeFn find_square_tree(DType dtype, int k) {
  return dtype == DType::f32   ? pick<Sum, float, Squared<float>>(k)
         : dtype == DType::f64 ? pick<Sum, double, Squared<double>>(k)
                               : nullptr;
}

TreeFn find_tree(Reduction op, DType dtype, int k) {
  if (!in_domain(dtype, domain_of(op))) return nullptr;
  return with_native(dtype, [op, k]<class T>() {
    return with_reduction<T>(op, [k]<class Op, class U>() { return pick<Op, U>(k); });
  });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {

SHMAP_KERNELS(find_tree);
SHMAP_KERNELS(find_bf16_tree);
SHMAP_KERNELS(find_square_tree);
TreeFn tree_kernel(Reduction op, DType dtype, int k) {
  constexpr int kSizes = 4;  // k = 2, 4, 8, 16
  // Looked up once: a small collective takes less time than the lookup.
  static const auto table = [] {
    std::array<TreeFn, kReductionCount * kDTypeCount * kSizes> found{};
    for (int i = 0; i < static_cast<int>(found.size()); ++i) {
      const int row = i / kSizes;
      found[static_cast<std::size_t>(i)] =
          SHMAP_BEST(find_tree)(static_cast<Reduction>(row / kDTypeCount),
                                static_cast<DType>(row % kDTypeCount), 2 << i % kSizes);
    }
    return found;
  }();
  const int row = static_cast<int>(op) * kDTypeCount + static_cast<int>(dtype);
  const int size = std::countr_zero(static_cast<unsigned>(k)) - 1;
  return table[static_cast<std::size_t>(row * kSizes + size)];
}
TreeFn bf16_tree_kernel(Reduction op, int k) { return SHMAP_BEST(find_bf16_tree)(op, k); }

TreeFn square_tree_kernel(DType dtype, int k) { return SHMAP_BEST(find_square_tree)(dtype, k); }

ReduceScratch& reduce_scratch() { return kept_by_thread<ReduceScratch>(); }

LeafTree::LeafTree(TreeFn pair, int itemsize, std::int64_t m)
    : pair_(pair), m_(m), bytes_(m * itemsize) {}

void LeafTree::add() {
  ++depth_;
  for (std::uint64_t bit = ++leaves_; bit % 2 == 0; bit /= 2) {
    --depth_;
    std::byte* left = buffers_ + (depth_ - 1) * kLeafBytes;
    const void* both[2] = {left, left + kLeafBytes};
    pair_(both, left, m_);
  }
}

void LeafTree::finish(void* out) {
  const void* result = buffers_ + (depth_ - 1) * kLeafBytes;
  while (--depth_ > 0) {
    std::byte* left = buffers_ + (depth_ - 1) * kLeafBytes;
    const void* both[2] = {left, result};
    void* to = depth_ == 1 ? out : left;
    pair_(both, to, m_);
    result = to;
  }
  if (result != out) std::memcpy(out, result, static_cast<std::size_t>(bytes_));
  leaves_ = 0;
}

}  // namespace shmap::cpu
#endif
