// The calls that combine_ranks is put together from: one a .cu file.
#pragma once
#include <cstdint>

#include "cuda/kernels/combine.h"

namespace shmap::cuda {

struct CombineCall {
  const void* const* ranks;
  int n;
  void* out;
  std::int64_t rows, length, stride;  // elements; none is empty
  void* stream;
};

// False, and no call, where the dtype has no such op.
bool combine_sum_or_prod(Reduction op, DType dtype, const CombineCall& call);
bool combine_max_or_min(Reduction op, DType dtype, const CombineCall& call);
bool combine_any_or_all(Reduction op, DType dtype, const CombineCall& call);

}  // namespace shmap::cuda
