#include "cuda/kernels/reduce/reduce.h"

#include <string>

#include "core/base/reduction_domain.h"
#include "cuda/kernels/reduce/reduce_call.h"
#include "cuda/kernels/reduce/reduce_plan.h"
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
  const ReduceCall call{runs, in, out, scratch, stream};
  const Domain domain = domain_of(op);
  const bool done = domain == Domain::numbers ? reduce_numbers(op, dtype, call)
                    : domain == Domain::bits  ? reduce_bits(op, dtype, call)
                                              : reduce_plain(op, dtype, call);
  if (done) return;
  throw TypeError(std::string("reduce: reduction ") + to_string(op) + " of " + to_string(dtype) +
                  " does not exist; cast to a dtype that has it first");
}

}  // namespace shmap::cuda
