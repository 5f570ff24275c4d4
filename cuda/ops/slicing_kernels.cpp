// dynamic_slice and dynamic_update_slice on CUDA devices.
#include "core/ops/slicing.h"

#include "core/runtime/kernel.h"
#include "cuda/kernels/elementwise/fill.h"
#include "cuda/kernels/indexing/slicing.h"
#include "cuda/kernels/move/copy.h"
#include "cuda/ops/call_operand.h"

namespace shmap {

namespace {

// The start operands, from operand `first` on.
struct Starts {
  cuda::SliceStart start[kMaxRank];

  Starts(const KernelCall& call, std::size_t first) {
    for (std::size_t i = first; i < call.in.size(); ++i)
      start[i - first] = {call.in[i], call.in_types[i].dtype(), cuda::is_literal(call, i)};
  }
};

// Copies operand i, which has one element, as the whole result.
void copy_element(const KernelCall& call, std::size_t i) {
  cuda::fill(call.out[0], cuda::element_of(call, i), itemsize(call.out_types[0].dtype()), 1,
             call.native);
}

void run_dynamic_slice(const KernelCall& call) {
  const Shape& whole = call.in_types[0].dims();
  if (whole.empty()) return copy_element(call, 0);
  cuda::dynamic_slice(itemsize(call.out_types[0].dtype()), whole, call.out_types[0].dims(),
                      Starts(call, 1).start, call.in[0], call.out[0], call.native);
}

void run_dynamic_update_slice(const KernelCall& call) {
  const Shape& whole = call.out_types[0].dims();
  if (call.out_types[0].size() == 0) return;
  if (whole.empty()) return copy_element(call, 1);
  if (call.in[0] != call.out[0])
    cuda::copy_bytes(call.out[0], call.in[0], call.out_types[0].nbytes(), call.native);
  cuda::dynamic_update_slice(itemsize(call.out_types[0].dtype()), whole, call.in_types[1].dims(),
                             Starts(call, 2).start, call.in[1], call.out[0], call.native);
}

}  // namespace

void register_cuda_slicing_kernels() {
  dynamic_slice_p.kernel(DeviceKind::cuda) = {run_dynamic_slice};
  dynamic_update_slice_p.kernel(DeviceKind::cuda) = {run_dynamic_update_slice};
}

}  // namespace shmap
