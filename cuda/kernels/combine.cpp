#include "cuda/kernels/combine.h"

#include <string>

#include "cuda/kernels/combine_parts.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

bool run(Reduction op, DType dtype, const CombineCall& call) {
  switch (op) {
    case Reduction::sum:
    case Reduction::prod:
      return combine_sum_or_prod(op, dtype, call);
    case Reduction::max:
    case Reduction::min:
      return combine_max_or_min(op, dtype, call);
    case Reduction::any:
    case Reduction::all:
      return combine_any_or_all(op, dtype, call);
  }
  return false;
}

}  // namespace

void combine_ranks(Reduction op, DType dtype, const void* const* ranks, int n, void* out,
                   std::int64_t rows, std::int64_t length, std::int64_t stride, void* stream) {
  if (n < 1 || n > kMaxRanks) {
    throw ValueError("combine_ranks: " + std::to_string(n) + " ranks on CUDA devices; 1 to " +
                     std::to_string(kMaxRanks) + " can be combined: use a smaller mesh axis");
  }
  if (rows <= 0 || length <= 0) return;
  if (!run(op, dtype, {ranks, n, out, rows, length, stride, stream})) {
    throw TypeError(std::string("combine_ranks: reduction ") + to_string(op) + " of " +
                    to_string(dtype) + " does not exist; cast to a dtype that has it first");
  }
}

}  // namespace shmap::cuda
