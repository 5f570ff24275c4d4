// reduce() by operation: false, and nothing done, where the dtype has none of the kind.
#pragma once
#include "cuda/kernels/reduce.h"

namespace shmap::cuda {

bool reduce_numbers(Reduction op, DType dtype, const ReduceRuns& runs, const void* in, void* out,
                    void* scratch, void* stream);  // sum, prod
bool reduce_extremes(Reduction op, DType dtype, const ReduceRuns& runs, const void* in, void* out,
                     void* scratch, void* stream);  // max, min
bool reduce_bits(Reduction op, DType dtype, const ReduceRuns& runs, const void* in, void* out,
                 void* scratch, void* stream);  // any, all

}  // namespace shmap::cuda
