// broadcast_in_dim and iota on CUDA devices.
#include "core/ops/call_copies.h"
#include "core/ops/lines.h"
#include "core/ops/shape_params.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/elementwise/fill.h"
#include "cuda/kernels/move/copy.h"
#include "cuda/ops/call_operand.h"

namespace shmap {

namespace {

void run_broadcast(const KernelCall& call) {
  const int item = itemsize(call.out_types[0].dtype());
  if (call.in_types[0].size() == 1) {
    cuda::fill(call.out[0], cuda::element_of(call, 0), item, call.out_types[0].size(), call.native);
    return;
  }
  cuda::copy_strided(broadcast_copy(call), call.native);
}

void run_iota(const KernelCall& call) {
  const Lines lines(call.out_types[0].dims(), params_as<IotaParams>(call.params).dimension);
  cuda::iota(call.out_types[0].dtype(), call.out[0], lines.outer, lines.length, lines.inner,
             call.native);
}

}  // namespace

void register_cuda_creation_kernels() {
  broadcast_in_dim_p.kernel(DeviceKind::cuda) = {run_broadcast};
  iota_p.kernel(DeviceKind::cuda) = {run_iota};
}

}  // namespace shmap
