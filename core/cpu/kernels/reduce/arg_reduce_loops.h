// Functions of which the argmax and argmin kernels consist, for bool, integers, f32 and f64.
#pragma once
#include "core/cpu/kernels/reduce/arg_reduce.h"
#include "core/cpu/kernels/reduce/reduce_loops.h"

namespace shmap::cpu {

struct ArgLoops {
  RunFn extreme;  // the largest (smallest) element of a run, or NaN
  // Returns the index of the first element of in[0 … n) that equals *value (or is NaN, if *value is
  // NaN). Such an element must exist.
  std::int64_t (*find)(const void* in, std::int64_t n, const void* value);
  // True if *a is better than *b at any position: larger (smaller), or NaN while *b is a number.
  bool (*before)(const void* a, const void* b);
  // Replaces best[j] by row[j], and best_index[j] by `index`, wherever row[j] is the better value.
  void (*update)(const void* row, std::int32_t index, void* best, std::int32_t* best_index,
                 std::int64_t n);
};

// `extreme` is nullptr for any other dtype.
ArgLoops arg_loops(ArgReduction op, DType dtype);

}  // namespace shmap::cpu
