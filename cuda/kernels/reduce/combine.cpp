#include "cuda/kernels/reduce/combine.h"

#include <algorithm>
#include <string>

#include "core/base/reduction_domain.h"
#include "cuda/kernels/reduce/combine_call.h"
#include "shmap/error.h"

namespace shmap::cuda {
void combine_ranks(Reduction op, DType dtype, const void* const* ranks, int n,
                   std::span<const CombinedPiece> pieces, std::int64_t rows, std::int64_t length,
                   std::int64_t stride, void* stream) {
  if (n < 1 || n > kMaxRanks) {
    throw ValueError("combine_ranks: " + std::to_string(n) + " ranks on CUDA devices; 1 to " +
                     std::to_string(kMaxRanks) + " can be combined: use a smaller mesh axis");
  }
  if (rows <= 0 || length <= 0) return;
  const Domain domain = domain_of(op);
  while (!pieces.empty()) {
    const auto now = pieces.first(std::min<std::size_t>(pieces.size(), kMaxPieces));
    const CombineCall call{ranks, n, now, rows, length, stride, stream};
    const bool done = domain == Domain::numbers ? combine_numbers(op, dtype, call)
                      : domain == Domain::bits  ? combine_bits(op, dtype, call)
                                                : combine_plain(op, dtype, call);
    if (!done) {
      throw TypeError(std::string("combine_ranks: reduction ") + to_string(op) + " of " +
                      to_string(dtype) + " does not exist; cast to a dtype that has it first");
    }
    pieces = pieces.subspan(now.size());
  }
}

}  // namespace shmap::cuda
