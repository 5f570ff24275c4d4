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
  const auto done = [&] {
    switch (op) {
      case Reduction::sum:
      case Reduction::prod:
        return reduce_numbers(op, dtype, runs, in, out, scratch, stream);
      case Reduction::max:
      case Reduction::min:
        return reduce_extremes(op, dtype, runs, in, out, scratch, stream);
      case Reduction::any:
      case Reduction::all:
        return reduce_bits(op, dtype, runs, in, out, scratch, stream);
    }
    return false;
  };
  if (done()) return;
  throw TypeError(std::string("reduce: reduction ") + to_string(op) + " of " + to_string(dtype) +
                  " does not exist; cast to a dtype that has it first");
}

}  // namespace shmap::cuda
