#pragma once
#include "cuda/kernels/attention.h"

namespace shmap::cuda {

// For each row of each head, packed [outer, inner, shared, row]: the logarithm of the sum of the
// exponentials of its scores, of the greatest score and the sum in a.sums.
void attention_logs(const Attention& a, float* logs, void* native_stream);
// The other way round: a.sums gets each logarithm as if it were the greatest score, and the sum 1,
// from which weights are computed likewise.
void sums_of_logs(const Attention& a, float* logs, void* native_stream);

}  // namespace shmap::cuda
