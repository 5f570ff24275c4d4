// Reductions on CUDA devices.
#include "core/ops/reduce.h"

#include <algorithm>

#include "core/ops/lines.h"
#include "core/ops/reduce_groups.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/reduce/reduce.h"
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

template <Reduction op>
void run_reduce(const KernelCall& call) {
  const cuda::ReduceRuns runs = runs_of(call);
  if (runs.count == 0) return cuda::run_literal_copy(call);
  cuda::reduce(op, call.in_types[0].dtype(), runs, call.in[0], call.out[0], call.scratch,
               call.native);
}

Lines searched_lines(const KernelCall& call) {
  return {call.in_types[0].dims(), params_as<ArgReduceParams>(call.params).axes[0]};
}

std::int64_t arg_reduce_scratch(const KernelCall& call) {
  const Lines lines = searched_lines(call);
  return cuda::arg_reduce_scratch(lines.outer, lines.length, lines.inner);
}

template <ArgReduction op>
void run_arg_reduce(const KernelCall& call) {
  const Lines lines = searched_lines(call);
  cuda::arg_reduce(op, call.in_types[0].dtype(), call.out_types[0].dtype(), lines.outer,
                   lines.length, lines.inner, call.in[0], call.out[0], call.scratch, call.native);
}

void set(Primitive& p, KernelFn run, ScratchFn scratch) {
  p.kernel(DeviceKind::cuda) = {.run = run, .scratch = scratch};
}

}  // namespace

void register_cuda_reduce_kernels() {
#define SHMAP_SET(name, domain, primitive) \
  set(primitive##_p, run_reduce<Reduction::name>, reduce_scratch);
  SHMAP_REDUCTIONS(SHMAP_SET)
#undef SHMAP_SET
  set(argmax_p, run_arg_reduce<ArgReduction::argmax>, arg_reduce_scratch);
  set(argmin_p, run_arg_reduce<ArgReduction::argmin>, arg_reduce_scratch);
}

}  // namespace shmap
