// reduce() for each domain of core/base/reduction_ops.h, in one .cu file each. Returns false,
// without effect, where the dtype is not in the domain.
#pragma once
#include "cuda/kernels/reduce/reduce.h"

namespace shmap::cuda {

struct ReduceCall {
  const ReduceRuns& runs;
  const void* in;
  void *out, *scratch;
  void* stream;
};

bool reduce_numbers(Reduction op, DType dtype, const ReduceCall& call);
bool reduce_plain(Reduction op, DType dtype, const ReduceCall& call);
bool reduce_bits(Reduction op, DType dtype, const ReduceCall& call);

}  // namespace shmap::cuda
