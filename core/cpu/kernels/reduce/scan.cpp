#include "core/cpu/kernels/reduce/scan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "core/base/element_type.h"
#include "core/cpu/kernels/reduce/reduce.h"
#include "core/cpu/kernels/reduce/scan_loops.h"
#include "core/cpu/kernels/vector/extremes.h"
#include "shmap/half.h"

namespace shmap::cpu {
namespace {

template <class T>
inline constexpr bool kReal =
    std::is_floating_point_v<T> || std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

// The type of running results: f64 for sums and products of floats; unsigned, which wraps, for
// integers.
template <class T>
struct Accumulator {
  using type = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
};
template <class T>
requires kReal<T>
struct Accumulator<T> {
  using type = double;
};

struct Sum {
  static constexpr Cumulative op = Cumulative::cumsum;
  template <class T>
  using Acc = typename Accumulator<T>::type;
  template <class A>
  static A run(A a, A b) {
    return a + b;
  }
};
struct Prod {
  static constexpr Cumulative op = Cumulative::cumprod;
  template <class T>
  using Acc = typename Accumulator<T>::type;
  template <class A>
  static A run(A a, A b) {
    return a * b;
  }
};
struct Max {
  static constexpr Cumulative op = Cumulative::cummax;
  template <class T>
  using Acc = std::conditional_t<kReal<T> && sizeof(T) == 2, float, T>;
  template <class A>
  static A run(A a, A b) {
    return larger_of(a, b);
  }
};
struct Min {
  static constexpr Cumulative op = Cumulative::cummin;
  template <class T>
  using Acc = Max::Acc<T>;
  template <class A>
  static A run(A a, A b) {
    return smaller_of(a, b);
  }
};
struct LogSumExp {
  static constexpr Cumulative op = Cumulative::cumlogsumexp;
  template <class T>
  using Acc = double;
  static double run(double a, double b) {
    if (a == b) return a + 0.693147180559945309417;  // also correct for two infinities
    const double larger = Max::run(a, b);
    if (std::isinf(larger)) return larger;
    return larger + std::log1p(std::exp(-std::fabs(a - b)));
  }
};

template <class T, class A>
T narrowed(A value) {
  if constexpr (kReal<T> && sizeof(T) == 2)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}
template <class A, class T>
A widened(T value) {
  if constexpr (kReal<T> && sizeof(T) == 2)
    return static_cast<A>(static_cast<float>(value));
  else
    return static_cast<A>(value);
}

// Scans rows `pitch` elements apart side by side: additions of different rows do not depend on each
// other, as additions within one row do.
template <class Op, class T, std::size_t... row>
void scan_rows(const T* from, T* to, std::int64_t len, std::int64_t step, std::int64_t pitch,
               std::index_sequence<row...>) {
  using A = typename Op::template Acc<T>;
  A running[] = {widened<A>(from[static_cast<std::int64_t>(row) * pitch])...};
  ((to[static_cast<std::int64_t>(row) * pitch] = from[static_cast<std::int64_t>(row) * pitch]),
   ...);
  for (std::int64_t i = 1; i < len; ++i) {
    const T* const at = from + i * step;
    T* const result = to + i * step;
    ((running[row] = Op::run(running[row], widened<A>(at[static_cast<std::int64_t>(row) * pitch])),
      result[static_cast<std::int64_t>(row) * pitch] = narrowed<T>(running[row])),
     ...);
  }
}

template <class Op, class T>
void scan(const void* in, void* out, std::int64_t outer, std::int64_t len, std::int64_t inner,
          bool reverse) {
  using A = typename Op::template Acc<T>;
  if (len <= 0 || inner <= 0) return;
  if constexpr (std::is_integral_v<T>) {
    if (inner == 1) {
      static const LineScanFn line = line_scan_kernel(Op::op, dtype_of<T>);
      for (std::int64_t o = 0; o < outer; ++o)
        line(static_cast<const T*>(in) + o * len, static_cast<T*>(out) + o * len, len, reverse,
             nullptr);
      return;
    }
  }
  const std::int64_t step = reverse ? -inner : inner;
  std::int64_t o = 0;
  if (inner == 1) {
    constexpr std::int64_t kRows = 8;
    if constexpr (std::is_same_v<T, float>) {
      static const RowsScanFn rows = rows_scan_kernel(Op::op);
      for (; rows != nullptr && o + kScanRows <= outer; o += kScanRows)
        rows(static_cast<const T*>(in) + o * len, static_cast<T*>(out) + o * len, len, reverse);
    }
    for (; o + kRows <= outer; o += kRows) {
      const std::int64_t start = o * len + (reverse ? len - 1 : 0);
      scan_rows<Op>(static_cast<const T*>(in) + start, static_cast<T*>(out) + start, len, step, len,
                    std::make_index_sequence<kRows>());
    }
  }
  for (; o < outer; ++o) {
    const std::int64_t start = o * len * inner + (reverse ? (len - 1) * inner : 0);
    const T* from = static_cast<const T*>(in) + start;
    T* to = static_cast<T*>(out) + start;
    if (inner == 1) {
      A running = widened<A>(*from);
      *to = *from;
      for (std::int64_t i = 1; i < len; ++i) {
        running = Op::run(running, widened<A>(from[i * step]));
        to[i * step] = narrowed<T>(running);
      }
      continue;
    }
    constexpr std::int64_t kColumns = 256;
    A running[kColumns];
    for (std::int64_t j = 0; j < inner; j += kColumns) {
      const std::int64_t m = std::min(kColumns, inner - j);
      for (std::int64_t c = 0; c < m; ++c) {
        running[c] = widened<A>(from[j + c]);
        to[j + c] = from[j + c];
      }
      for (std::int64_t i = 1; i < len; ++i) {
        const T* row = from + i * step + j;
        T* result = to + i * step + j;
        for (std::int64_t c = 0; c < m; ++c) {
          running[c] = Op::run(running[c], widened<A>(row[c]));
          result[c] = narrowed<T>(running[c]);
        }
      }
    }
  }
}

template <class T>
ScanFn find(Cumulative op) {
  using U =
      typename std::conditional_t<kReal<T>, std::type_identity<T>, std::make_unsigned<T>>::type;
  switch (op) {
    case Cumulative::cumsum:
      return scan<Sum, U>;
    case Cumulative::cumprod:
      return scan<Prod, U>;
    case Cumulative::cummax:
      return scan<Max, T>;
    case Cumulative::cummin:
      return scan<Min, T>;
    case Cumulative::cumlogsumexp:
      if constexpr (kReal<T>) return scan<LogSumExp, T>;
      return nullptr;
  }
  return nullptr;
}

}  // namespace

ScanFn scan_kernel(Cumulative op, DType dtype) {
  if (dtype == DType::bool_)
    return op == Cumulative::cummax || op == Cumulative::cummin ? find<std::uint8_t>(op) : nullptr;
  return with_number(dtype, [op]<class T>() { return find<T>(op); });
}

bool scans_ranges(Cumulative op, DType dtype) { return line_scan_kernel(op, dtype) != nullptr; }

void scan_range(Cumulative op, DType dtype, const void* in, void* out, std::int64_t len,
                bool reverse, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  const Reduction all = op == Cumulative::cumsum    ? Reduction::sum
                        : op == Cumulative::cumprod ? Reduction::prod
                        : op == Cumulative::cummax  ? Reduction::max
                                                    : Reduction::min;
  const std::int64_t size = itemsize(dtype);
  const auto* const from = static_cast<const std::byte*>(in);
  const std::int64_t first = reverse ? end : 0, count = reverse ? len - end : begin;
  std::uint64_t before = 0;
  if (count > 0) reduce_kernel(all, dtype)(from + first * size, &before, 1, count, 1);
  line_scan_kernel(op, dtype)(from + begin * size, static_cast<std::byte*>(out) + begin * size,
                              end - begin, reverse, count > 0 ? &before : nullptr);
}

}  // namespace shmap::cpu
