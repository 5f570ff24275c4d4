// broadcast_in_dim and iota on CUDA devices.
#include <algorithm>

#include "core/ops/lines.h"
#include "core/ops/shape_params.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/copy.h"
#include "cuda/kernels/fill.h"
#include "cuda/ops/call_operand.h"

namespace shmap {

namespace {

void run_broadcast(const KernelCall& call) {
  const int item = itemsize(call.out_types[0].dtype());
  if (call.in_types[0].size() == 1) {
    cuda::fill(call.out[0], cuda::element_of(call, 0), item, call.out_types[0].size(), call.native);
    return;
  }
  const Shape &from = call.in_types[0].dims(), &to = call.out_types[0].dims();
  const Dims& dims = params_as<BroadcastParams>(call.params).dims;
  cuda::StridedCopy copy;
  copy.rank = to.rank();
  copy.itemsize = item;
  copy.src = call.in[0];
  copy.dst = call.out[0];
  std::copy(to.begin(), to.end(), copy.extent);
  cuda::row_major_strides(copy.rank, copy.extent, item, copy.dst_stride);
  std::fill_n(copy.src_stride, copy.rank, 0);
  std::int64_t stride = item;
  for (std::size_t d = from.size(); d-- > 0;) {
    if (from[d] != 1) copy.src_stride[dims[d]] = stride;
    stride *= from[d];
  }
  cuda::copy_strided(copy, call.native);
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
