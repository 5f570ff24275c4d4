#include "cuda/kernels/reduce.h"

#include <string>

#include "cuda/kernels/reduce_parts.h"
#include "cuda/kernels/reduce_plan.h"
#include "shmap/error.h"

namespace shmap::cuda {

std::int64_t reduce_scratch(DType dtype, const ReduceRuns& runs) {
  const ReduceLayout layout(runs);
  if (layout.results * layout.elements == 0) return 0;
  const ReducePlan plan(layout, itemsize(dtype));
  return plan.parts > 1 ? plan.parts * layout.results * (itemsize(dtype) == 8 ? 8 : 4) : 0;
}

void reduce(ReduceOp op, DType dtype, const ReduceRuns& runs, const void* in, void* out,
            void* scratch, void* stream) {
  const bool numbers = op == ReduceOp::sum || op == ReduceOp::prod;
  const bool extremes = op == ReduceOp::max || op == ReduceOp::min;
  const auto run = numbers ? reduce_numbers : extremes ? reduce_extremes : reduce_bits;
  if (run(op, dtype, runs, in, out, scratch, stream)) return;
  throw TypeError("reduce: reduction " + std::to_string(static_cast<int>(op)) + " of " +
                  to_string(dtype) + " does not exist; cast to a dtype that has it first");
}

}  // namespace shmap::cuda
