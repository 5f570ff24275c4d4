// What argmax and argmin are put together from; bool, integers, f32 and f64.
#pragma once
#include "core/cpu/kernels/arg_reduce.h"
#include "core/cpu/kernels/reduce_parts.h"

namespace shmap::cpu {

struct ArgParts {
  RunFn extreme;  // the largest (smallest) of a run, or NaN
  // The index of the first element of in[0 … n) that equals *value, or that is NaN as it is; there
  // is one.
  std::int64_t (*find)(const void* in, std::int64_t n, const void* value);
  // Whether *a goes before *b wherever they lie: larger (smaller), or the only NaN.
  bool (*before)(const void* a, const void* b);
  // Where row[j] goes before best[j], it takes its place, and `index` that of index[j].
  void (*update)(const void* row, std::int32_t index, void* best, std::int32_t* best_index,
                 std::int64_t n);
};

// `extreme` is nullptr where the dtype is another.
ArgParts arg_parts(ArgReduceOp op, DType dtype);

}  // namespace shmap::cpu
