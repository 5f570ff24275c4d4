// reshape, transpose, rev, concatenate, pad and slice on CUDA devices: strided copies.
#include <algorithm>

#include "core/ops/call_copies.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/move/copy.h"
#include "cuda/kernels/move/pad.h"
#include "cuda/ops/call_operand.h"
#include "cuda/ops/literal_copy.h"

namespace shmap {

namespace {

template <StridedCopy (*make)(const KernelCall&)>
void run_copy(const KernelCall& call) {
  cuda::copy_strided(make(call), call.native);
}

void run_concatenate(const KernelCall& call) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    if (call.in_types[i].size() == 0) continue;
    const StridedCopy copy = concatenate_copy(call, i, at);
    cuda::copy_strided(copy, call.native);
    at += copy.src_stride[0];
  }
}

void run_pad(const KernelCall& call) {
  // Only an operand without dims may be a literal, and it has nothing to pad.
  if (call.out_types[0].rank() == 0) return cuda::run_literal_copy(call);
  cuda::pad({padding_of(call), call.in[0], cuda::element_of(call, 1), call.out[0]}, call.native);
}

}  // namespace

void register_cuda_shape_kernels() {
  reshape_p.kernel(DeviceKind::cuda) = {cuda::run_literal_copy};
  transpose_p.kernel(DeviceKind::cuda) = {run_copy<transpose_copy>};
  rev_p.kernel(DeviceKind::cuda) = {run_copy<rev_copy>};
  slice_p.kernel(DeviceKind::cuda) = {run_copy<slice_copy>};
  concatenate_p.kernel(DeviceKind::cuda) = {run_concatenate};
  pad_p.kernel(DeviceKind::cuda) = {run_pad};
}

}  // namespace shmap
