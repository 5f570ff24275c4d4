// The operations of reductions, and the reduction of a short contiguous run, for the .cpp files of
// reductions, collectives and argmax.
//
// Included after targets-inl.h, once for each instruction set.
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;
#define SHMAP_VECTOR_OP(expression)      \
  template <class V>                     \
  static HWY_INLINE V vector(V a, V b) { \
    return expression;                   \
  }
#else
#define SHMAP_VECTOR_OP(expression)
#endif

// What wraps is computed in an unsigned type of at least int's width.
template <class T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, T,
                                std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>>;

struct Sum {
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
  }
  SHMAP_VECTOR_OP(hn::Add(a, b))
};
struct Prod {
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
  }
  SHMAP_VECTOR_OP(hn::Mul(a, b))
};
struct Max {  // a NaN in b fails the comparison, one in a is asked for
  template <class T>
  static T run(T a, T b) {
    const T larger = a > b ? a : b;
    return a != a ? a : larger;
  }
  SHMAP_VECTOR_OP(hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Gt(a, b), a, b)))
};
struct Min {
  template <class T>
  static T run(T a, T b) {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
  }
  SHMAP_VECTOR_OP(hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Lt(a, b), a, b)))
};
struct Or {
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct And {
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Xor {
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
#undef SHMAP_VECTOR_OP

// Floats are reduced in kLanes running results, whatever the machine's vectors, which are then
// folded in halves: the order depends on n alone.
template <class T>
inline constexpr int kLanes = 256 / static_cast<int>(sizeof(T));

template <class Op, class T>
T fold(T* lanes, std::int64_t m) {  // 1 <= m <= kLanes<T>
  while (m > 1) {
    const auto half = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(m)) / 2);
    for (std::int64_t j = 0; j + half < m; ++j) lanes[j] = Op::run(lanes[j], lanes[j + half]);
    m = half;
  }
  return lanes[0];
}

// All kLanes: the loops' lengths are known, so that they become a few vector operations.
template <class Op, class T, int half>
T fold_all(T* lanes) {
  if constexpr (half == 0) {
    return lanes[0];
  } else {
    for (int j = 0; j < half; ++j) lanes[j] = Op::run(lanes[j], lanes[j + half]);
    return fold_all<Op, T, half / 2>(lanes);
  }
}

// n >= 1 contiguous elements to one.
template <class Op, class T>
T reduce_run(const T* p, std::int64_t n) {
  if constexpr (!std::is_floating_point_v<T>) {
    T result = p[0];
    for (std::int64_t i = 1; i < n; ++i) result = Op::run(result, p[i]);
    return result;
  } else {
    constexpr int width = kLanes<T>;
    alignas(64) T lanes[width];
    if (n < width) {
      for (std::int64_t j = 0; j < n; ++j) lanes[j] = p[j];
      return fold<Op>(lanes, n);
    }
    std::int64_t i = width;
#if SHMAP_VECTORS
    const hn::ScalableTag<T> d;
    constexpr int step = hn::MaxLanes(hn::ScalableTag<T>{});
    auto a0 = hn::LoadU(d, p), a1 = hn::LoadU(d, p + step), a2 = hn::LoadU(d, p + 2 * step),
         a3 = hn::LoadU(d, p + 3 * step);
    if constexpr (width == 4 * step) {
      for (; i + width <= n; i += width) {
        a0 = Op::vector(a0, hn::LoadU(d, p + i));
        a1 = Op::vector(a1, hn::LoadU(d, p + i + step));
        a2 = Op::vector(a2, hn::LoadU(d, p + i + 2 * step));
        a3 = Op::vector(a3, hn::LoadU(d, p + i + 3 * step));
      }
    } else {
      static_assert(width == 8 * step);
      auto a4 = hn::LoadU(d, p + 4 * step), a5 = hn::LoadU(d, p + 5 * step),
           a6 = hn::LoadU(d, p + 6 * step), a7 = hn::LoadU(d, p + 7 * step);
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
      hn::Store(a4, d, lanes + 4 * step);
      hn::Store(a5, d, lanes + 5 * step);
      hn::Store(a6, d, lanes + 6 * step);
      hn::Store(a7, d, lanes + 7 * step);
    }
    hn::Store(a0, d, lanes);
    hn::Store(a1, d, lanes + step);
    hn::Store(a2, d, lanes + 2 * step);
    hn::Store(a3, d, lanes + 3 * step);
#else
    for (int j = 0; j < width; ++j) lanes[j] = p[j];
    for (; i + width <= n; i += width)
      for (int j = 0; j < width; ++j) lanes[j] = Op::run(lanes[j], p[i + j]);
#endif
    for (std::int64_t j = 0; i + j < n; ++j) lanes[j] = Op::run(lanes[j], p[i + j]);
    return fold_all<Op, T, width / 2>(lanes);
  }
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
