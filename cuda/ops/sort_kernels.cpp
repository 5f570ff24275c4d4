// Sorting and top_k on CUDA devices.
#include "core/ops/call_sorts.h"
#include "core/ops/sort.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/sort/sort.h"

namespace shmap {

namespace {

std::int64_t sort_scratch(const KernelCall& call) {
  return cuda::sort_scratch(SortCall(call).sort);
}
void run_sort(const KernelCall& call) {
  cuda::sort(SortCall(call).sort, call.scratch, call.native);
}

std::int64_t top_k_scratch(const KernelCall& call) { return cuda::top_k_scratch(top_k_of(call)); }
void run_top_k(const KernelCall& call) { cuda::top_k(top_k_of(call), call.scratch, call.native); }

void set_sort(Primitive& p, KernelFn run, ScratchFn scratch) {
  Kernel& kernel = p.kernel(DeviceKind::cuda);
  kernel.run = run;
  kernel.scratch = scratch;
}

}  // namespace

void register_cuda_sort_kernels() {
  set_sort(sort_p, run_sort, sort_scratch);
  set_sort(top_k_p, run_top_k, top_k_scratch);
}

}  // namespace shmap
