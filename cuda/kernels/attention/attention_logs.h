// attention_logs, sums_of_logs: the sums of exponentials of attention as one logarithm a row, the
// form in which programs keep them for the derivative, and back.
#pragma once
#include "cuda/kernels/attention/attention.h"

namespace shmap::cuda {

// Writes to `logs`, for each row of each head, packed [outer, inner, shared, row], the logarithm of
// the sum of the exponentials of the row's scores, computed from the greatest score and the sum in
// a.sums.
void attention_logs(const Attention& a, float* logs, void* native_stream);
// The reverse: writes each logarithm to a.sums as if it were the greatest score, and 1 as the sum;
// the weights that are computed from these are the same.
void sums_of_logs(const Attention& a, float* logs, void* native_stream);

}  // namespace shmap::cuda
