// Sorting and top_k on CUDA devices.
#include <vector>

#include "core/ops/lines.h"
#include "core/ops/sort.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/sort.h"

namespace shmap {

namespace {

// The call as the raw kernel takes it.
struct SortCall {
  cuda::Sort sort;
  std::vector<cuda::SortOperand> operands;

  explicit SortCall(const KernelCall& call) {
    const auto& params = params_as<SortParams>(call.params);
    const Lines lines(call.in_types[0].dims(), params.dimension);
    sort.outer = lines.outer;
    sort.len = lines.length;
    sort.inner = lines.inner;
    sort.num_keys = static_cast<int>(params.num_keys);
    for (std::size_t i = 0; i < call.in.size(); ++i)
      operands.push_back({call.in_types[i].dtype(), call.in[i], call.out[i]});
    sort.operands = operands;
  }
};

std::int64_t sort_scratch(const KernelCall& call) {
  return cuda::sort_scratch(SortCall(call).sort);
}
void run_sort(const KernelCall& call) {
  cuda::sort(SortCall(call).sort, call.scratch, call.native);
}

cuda::TopK top_k_of(const KernelCall& call) {
  const Shape& dims = call.in_types[0].dims();
  const Lines lines(dims, std::ssize(dims) - 1);
  cuda::TopK t;
  t.dtype = call.in_types[0].dtype();
  t.outer = lines.outer;
  t.len = lines.length;
  t.k = call.out_types[0].dims().back();
  t.in = call.in[0];
  t.values = call.out[0];
  t.indices = static_cast<std::int32_t*>(call.out[1]);
  return t;
}

std::int64_t top_k_scratch(const KernelCall& call) { return cuda::top_k_scratch(top_k_of(call)); }
void run_top_k(const KernelCall& call) { cuda::top_k(top_k_of(call), call.scratch, call.native); }

void set(Primitive& p, KernelFn run, ScratchFn scratch) {
  Kernel& kernel = p.kernel(DeviceKind::cuda);
  kernel.run = run;
  kernel.scratch = scratch;
}

}  // namespace

void register_cuda_sort_kernels() {
  set(sort_p, run_sort, sort_scratch);
  set(top_k_p, run_top_k, top_k_scratch);
}

}  // namespace shmap
