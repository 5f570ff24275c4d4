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

void reduce(Reduction op, DType dtype, const ReduceRuns& runs, const void* in, void* out,
            void* scratch, void* stream) {
  const bool numbers = op == Reduction::sum || op == Reduction::prod;
  const bool extremes = op == Reduction::max || op == Reduction::min;
  const auto run = numbers ? reduce_numbers : extremes ? reduce_extremes : reduce_bits;
  if (run(op, dtype, runs, in, out, scratch, stream)) return;
  throw TypeError(std::string("reduce: reduction ") + to_string(op) + " of " + to_string(dtype) +
                  " does not exist; cast to a dtype that has it first");
}

}  // namespace shmap::cuda
