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

}  // namespace

void register_cuda_sort_kernels() {
  sort_p.kernel(DeviceKind::cuda) = {.run = run_sort, .scratch = sort_scratch};
  top_k_p.kernel(DeviceKind::cuda) = {.run = run_top_k, .scratch = top_k_scratch};
}

}  // namespace shmap
