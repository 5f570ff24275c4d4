// Cumulative operations on CUDA devices.
#include "core/ops/scan.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/scan.h"

namespace shmap {

namespace {

cuda::Scan scan_of(const KernelCall& call, cuda::ScanOp op) {
  const auto& params = params_as<ScanParams>(call.params);
  const Shape& dims = call.in_types[0].dims();
  const auto axis = static_cast<std::size_t>(params.axis);
  cuda::Scan scan;
  scan.op = op;
  scan.dtype = call.in_types[0].dtype();
  scan.outer = 1;
  for (std::size_t d = 0; d < axis; ++d) scan.outer *= dims[d];
  scan.len = dims[axis];
  for (std::size_t d = axis + 1; d < dims.size(); ++d) scan.inner *= dims[d];
  scan.reverse = params.reverse;
  scan.in = call.in[0];
  scan.out = call.out[0];
  return scan;
}

template <cuda::ScanOp op>
std::int64_t scan_scratch(const KernelCall& call) {
  return cuda::scan_scratch(scan_of(call, op));
}
template <cuda::ScanOp op>
void run_scan(const KernelCall& call) {
  cuda::scan(scan_of(call, op), call.scratch, call.native);
}

template <cuda::ScanOp op>
void set(Primitive& p) {
  Kernel& kernel = p.kernel(DeviceKind::cuda);
  kernel.run = run_scan<op>;
  kernel.scratch = scan_scratch<op>;
}

}  // namespace

void register_cuda_scan_kernels() {
  set<cuda::ScanOp::cumsum>(cumsum_p);
  set<cuda::ScanOp::cumprod>(cumprod_p);
  set<cuda::ScanOp::cummax>(cummax_p);
  set<cuda::ScanOp::cummin>(cummin_p);
  set<cuda::ScanOp::cumlogsumexp>(cumlogsumexp_p);
}

}  // namespace shmap
