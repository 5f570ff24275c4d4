// Reductions on CUDA devices.
#include "core/ops/reduce.h"

#include <algorithm>

#include "core/ops/reduce_groups.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/reduce.h"
#include "cuda/ops/literal_copy.h"

namespace shmap {

namespace {

static_assert(cuda::ReduceRuns::kMost == ReduceGroups::kMost);

cuda::ReduceRuns runs_of(const KernelCall& call) {
  const ReduceGroups groups(call.in_types[0].dims(), params_as<ReduceParams>(call.params).axes);
  cuda::ReduceRuns runs;
  runs.count = groups.count;
  std::copy(groups.kept, groups.kept + groups.count + 1, runs.kept);
  std::copy(groups.reduced, groups.reduced + groups.count, runs.reduced);
  return runs;
}

std::int64_t reduce_scratch(const KernelCall& call) {
  const cuda::ReduceRuns runs = runs_of(call);
  return runs.count == 0 ? 0 : cuda::reduce_scratch(call.in_types[0].dtype(), runs);
}

template <cuda::ReduceOp op>
void run_reduce(const KernelCall& call) {
  const cuda::ReduceRuns runs = runs_of(call);
  if (runs.count == 0) return cuda::run_literal_copy(call);
  cuda::reduce(op, call.in_types[0].dtype(), runs, call.in[0], call.out[0], call.scratch,
               call.native);
}

struct ArgExtents {
  std::int64_t outer = 1, reduced = 0, inner = 1;

  explicit ArgExtents(const KernelCall& call) {
    const Shape& dims = call.in_types[0].dims();
    const auto dim = static_cast<std::size_t>(params_as<ArgReduceParams>(call.params).axes[0]);
    for (std::size_t d = 0; d < dim; ++d) outer *= dims[d];
    reduced = dims[dim];
    for (std::size_t d = dim + 1; d < dims.size(); ++d) inner *= dims[d];
  }
};

std::int64_t arg_reduce_scratch(const KernelCall& call) {
  const ArgExtents e(call);
  return cuda::arg_reduce_scratch(e.outer, e.reduced, e.inner);
}

template <bool largest>
void run_arg_reduce(const KernelCall& call) {
  const ArgExtents e(call);
  cuda::arg_reduce(largest, call.in_types[0].dtype(), call.out_types[0].dtype(), e.outer, e.reduced,
                   e.inner, call.in[0], call.out[0], call.scratch, call.native);
}

void set(Primitive& p, KernelFn run, ScratchFn scratch) {
  Kernel& kernel = p.kernel(DeviceKind::cuda);
  kernel.run = run;
  kernel.scratch = scratch;
}

}  // namespace

void register_cuda_reduce_kernels() {
  set(reduce_sum_p, run_reduce<cuda::ReduceOp::sum>, reduce_scratch);
  set(reduce_prod_p, run_reduce<cuda::ReduceOp::prod>, reduce_scratch);
  set(reduce_max_p, run_reduce<cuda::ReduceOp::max>, reduce_scratch);
  set(reduce_min_p, run_reduce<cuda::ReduceOp::min>, reduce_scratch);
  set(reduce_and_p, run_reduce<cuda::ReduceOp::all>, reduce_scratch);
  set(reduce_or_p, run_reduce<cuda::ReduceOp::any>, reduce_scratch);
  set(argmax_p, run_arg_reduce<true>, arg_reduce_scratch);
  set(argmin_p, run_arg_reduce<false>, arg_reduce_scratch);
}

}  // namespace shmap
