// The operations of reductions, and the reduction of a short contiguous run, for the .cpp files of
// reductions, collectives and argmax.
//
// Included after targets-inl.h, once for each instruction set.
#include "core/cpu/kernels/vector/extremes-inl.h"
#include "core/cpu/kernels/vector/extremes.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;
// `neutral` is an x for which vector(a, x) has the bits of a.
#define SHMAP_VECTOR_OP(expression, neutral_value) \
  static constexpr double neutral = neutral_value; \
  template <class V>                               \
  static HWY_INLINE V vector(V a, V b) {           \
    return expression;                             \
  }
#else
#define SHMAP_VECTOR_OP(expression, neutral_value)
#endif

// Arithmetic that wraps is done in an unsigned type of at least int's width.
template <class T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, T,
                                std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>>;

// Each operation has run(a, b) and `identity`, the result for no elements. With vectors it also has
// SHMAP_VECTOR_OP, run() for two vectors.
struct Sum {
  template <class T>
  static constexpr T identity = T{0};
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
  }
  SHMAP_VECTOR_OP(hn::Add(a, b), -0.0)
};
struct Prod {
  template <class T>
  static constexpr T identity = T{1};
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
  }
  SHMAP_VECTOR_OP(hn::Mul(a, b), 1.0)
};
struct Max {
  template <class T>
  static constexpr T identity = std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                                            : std::numeric_limits<T>::lowest();
  template <class T>
  static T run(T a, T b) {
    return larger_of(a, b);
  }
  SHMAP_VECTOR_OP(larger(a, b), -HUGE_VAL)
};
struct Min {
  template <class T>
  static constexpr T identity = std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity()
                                                            : std::numeric_limits<T>::max();
  template <class T>
  static T run(T a, T b) {
    return smaller_of(a, b);
  }
  SHMAP_VECTOR_OP(smaller(a, b), HUGE_VAL)
};
struct Or {
  template <class T>
  static constexpr T identity = T{0};
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct And {
  template <class T>
  static constexpr T identity = static_cast<T>(~T{0});
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(a & b);
  }
};
#undef SHMAP_VECTOR_OP

// Calls f.template operator()<Op, U>() with the operation `op` from above for elements of the
// native type T (core/base/element_type.h). Sums, products and bits of integers are computed in the
// unsigned type U. The result has no value where T has no such operation.
template <class T, class F>
auto with_reduction(Reduction op, F&& f) -> decltype(f.template operator()<Sum, float>()) {
  using U = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                        std::type_identity<T>>::type;
  switch (op) {
    case Reduction::sum:
      return f.template operator()<Sum, U>();
    case Reduction::prod:
      return f.template operator()<Prod, U>();
    case Reduction::max:
      return f.template operator()<Max, T>();
    case Reduction::min:
      return f.template operator()<Min, T>();
    case Reduction::any:
      if constexpr (std::is_integral_v<T>) return f.template operator()<Or, U>();
      break;
    case Reduction::all:
      if constexpr (std::is_integral_v<T>) return f.template operator()<And, U>();
      break;
  }
  return {};
}

// Floats are reduced in kLanes running results, independent of the CPU's vector width, which are
// then folded in halves: the order depends on n alone.
template <class T>
inline constexpr int kLanes = 256 / static_cast<int>(sizeof(T));

#if SHMAP_VECTORS
// Folds the lanes of a vector in halves.
template <class Op, class D>
HWY_INLINE hn::TFromD<D> fold_lanes(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D{}) * sizeof(hn::TFromD<D>) > 16) {
    const hn::Half<D> half;
    return fold_lanes<Op>(half, Op::vector(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else if constexpr (hn::MaxLanes(D{}) == 4) {
    v = Op::vector(v, hn::Shuffle1032(v));
    return hn::GetLane(Op::vector(v, hn::Shuffle2301(v)));
  } else {
    return hn::GetLane(Op::vector(v, hn::Shuffle01(v)));
  }
}

// Loads the first `count` elements at p (any number), padded with neutral elements.
template <class Op, class D, class T>
HWY_INLINE hn::Vec<D> load_or_neutral(D d, const T* p, std::int64_t count) {
  constexpr std::int64_t lanes = hn::MaxLanes(D{});
  const hn::Vec<D> neutral = hn::Set(d, static_cast<T>(Op::neutral));
  if (count <= 0) return neutral;
  if (count >= lanes) return hn::LoadU(d, p);
  const auto mask = hn::FirstN(d, static_cast<std::size_t>(count));
  return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, p), neutral);
}

// Reduces n >= 1 contiguous floats to one.
template <class Op, class T>
T reduce_floats(const T* p, std::int64_t n) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr std::int64_t step = hn::MaxLanes(D{}), width = kLanes<T>;
  constexpr int vectors = static_cast<int>(width / step);
  static_assert(vectors == 4 || vectors == 8);
  const auto at = [&](std::int64_t i, int k) HWY_ATTR {
    return load_or_neutral<Op>(d, p + i + k * step, n - i - k * step);
  };
  if (n <= step) return fold_lanes<Op>(d, at(0, 0));
  auto a0 = at(0, 0), a1 = at(0, 1), a2 = at(0, 2), a3 = at(0, 3);
  std::int64_t i = width;
  if constexpr (vectors == 4) {
    for (; i + width <= n; i += width) {
      a0 = Op::vector(a0, hn::LoadU(d, p + i));
      a1 = Op::vector(a1, hn::LoadU(d, p + i + step));
      a2 = Op::vector(a2, hn::LoadU(d, p + i + 2 * step));
      a3 = Op::vector(a3, hn::LoadU(d, p + i + 3 * step));
    }
    if (i < n) {
      a0 = Op::vector(a0, at(i, 0));
      a1 = Op::vector(a1, at(i, 1));
      a2 = Op::vector(a2, at(i, 2));
      a3 = Op::vector(a3, at(i, 3));
    }
  } else {
    auto a4 = at(0, 4), a5 = at(0, 5), a6 = at(0, 6), a7 = at(0, 7);
    for (; i + width <= n; i += width) {
      a0 = Op::vector(a0, hn::LoadU(d, p + i));
      a1 = Op::vector(a1, hn::LoadU(d, p + i + step));
      a2 = Op::vector(a2, hn::LoadU(d, p + i + 2 * step));
      a3 = Op::vector(a3, hn::LoadU(d, p + i + 3 * step));
      a4 = Op::vector(a4, hn::LoadU(d, p + i + 4 * step));
      a5 = Op::vector(a5, hn::LoadU(d, p + i + 5 * step));
      a6 = Op::vector(a6, hn::LoadU(d, p + i + 6 * step));
      a7 = Op::vector(a7, hn::LoadU(d, p + i + 7 * step));
    }
    if (i < n) {
      a0 = Op::vector(a0, at(i, 0));
      a1 = Op::vector(a1, at(i, 1));
      a2 = Op::vector(a2, at(i, 2));
      a3 = Op::vector(a3, at(i, 3));
      a4 = Op::vector(a4, at(i, 4));
      a5 = Op::vector(a5, at(i, 5));
      a6 = Op::vector(a6, at(i, 6));
      a7 = Op::vector(a7, at(i, 7));
    }
    a0 = Op::vector(a0, a4);
    a1 = Op::vector(a1, a5);
    a2 = Op::vector(a2, a6);
    a3 = Op::vector(a3, a7);
  }
  return fold_lanes<Op>(d, Op::vector(Op::vector(a0, a2), Op::vector(a1, a3)));
}
#else
// Folds 2 * half lanes in halves. The loops have constant lengths, so that they become a few vector
// operations.
template <class Op, class T, int half>
T fold(T* lanes) {
  if constexpr (half == 0) {
    return lanes[0];
  } else {
    for (int j = 0; j < half; ++j) lanes[j] = Op::run(lanes[j], lanes[j + half]);
    return fold<Op, T, half / 2>(lanes);
  }
}

template <class Op, class T>
T reduce_floats(const T* p, std::int64_t n) {
  constexpr std::int64_t width = kLanes<T>;
  T lanes[width];
  for (std::int64_t j = 0; j < std::min(n, width); ++j) lanes[j] = p[j];
  if (n >= width) {
    std::int64_t i = width;
    for (; i + width <= n; i += width)
      for (std::int64_t j = 0; j < width; ++j) lanes[j] = Op::run(lanes[j], p[i + j]);
    for (std::int64_t j = 0; i + j < n; ++j) lanes[j] = Op::run(lanes[j], p[i + j]);
    return fold<Op, T, static_cast<int>(width / 2)>(lanes);
  }
  while (n > 1) {  // lanes beyond n are neutral
    const auto half = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)) / 2);
    for (std::int64_t j = 0; j + half < n; ++j) lanes[j] = Op::run(lanes[j], lanes[j + half]);
    n = half;
  }
  return lanes[0];
}
#endif

// Reduces n >= 1 contiguous elements to one.
template <class Op, class T>
T reduce_run(const T* p, std::int64_t n) {
  if constexpr (std::is_floating_point_v<T>) {
    return reduce_floats<Op>(p, n);
  } else {
    T result = p[0];
    for (std::int64_t i = 1; i < n; ++i) result = Op::run(result, p[i]);
    return result;
  }
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
