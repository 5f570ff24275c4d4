// The parts of the argmax and argmin kernels, for bool, integers, f32 and f64.
#pragma once
#include "core/cpu/kernels/arg_reduce.h"
#include "core/cpu/kernels/reduce_parts.h"

namespace shmap::cpu {

struct ArgParts {
  RunFn extreme;  // the largest (smallest) of a run, or NaN
  // The index of the first element of in[0 … n) that equals *value or, where *value is NaN, is NaN.
  // Such an element must exist.
  std::int64_t (*find)(const void* in, std::int64_t n, const void* value);
  // Whether *a is better than *b regardless of position: larger (smaller), or NaN where *b is not.
  bool (*before)(const void* a, const void* b);
  // Where row[j] is better than best[j], replaces best[j] by row[j], and best_index[j] by `index`.
  void (*update)(const void* row, std::int32_t index, void* best, std::int32_t* best_index,
                 std::int64_t n);
};

// `extreme` is nullptr for any other dtype.
ArgParts arg_parts(ArgReduction op, DType dtype);

}  // namespace shmap::cpu
