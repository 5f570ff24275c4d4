// combine_ranks() for each domain of core/base/reduction_ops.h, in one .cu file each.
#pragma once
#include <cstdint>

#include "cuda/kernels/reduce/combine.h"

namespace shmap::cuda {

struct CombineCall {
  const void* const* ranks;
  int n;
  std::span<const CombinedPiece> pieces;  // 1 to kMaxPieces
  std::int64_t rows, length, stride;      // elements; none is empty
  void* stream;
};

// Returns false, without effect, where the dtype is not in the domain.
bool combine_numbers(Reduction op, DType dtype, const CombineCall& call);
bool combine_plain(Reduction op, DType dtype, const CombineCall& call);
bool combine_bits(Reduction op, DType dtype, const CombineCall& call);

}  // namespace shmap::cuda
