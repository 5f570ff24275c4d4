// Cumulative operations on CUDA devices.
#include "core/ops/lines.h"
#include "core/ops/scan.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/reduce/scan.h"

namespace shmap {

namespace {

cuda::Scan scan_of(const KernelCall& call, Cumulative op) {
  const auto& params = params_as<ScanParams>(call.params);
  const Lines lines(call.in_types[0].dims(), params.axis);
  cuda::Scan scan;
  scan.op = op;
  scan.dtype = call.in_types[0].dtype();
  scan.outer = lines.outer;
  scan.len = lines.length;
  scan.inner = lines.inner;
  scan.reverse = params.reverse;
  scan.in = call.in[0];
  scan.out = call.out[0];
  return scan;
}

template <Cumulative op>
std::int64_t scan_scratch(const KernelCall& call) {
  return cuda::scan_scratch(scan_of(call, op));
}
template <Cumulative op>
void run_scan(const KernelCall& call) {
  cuda::scan(scan_of(call, op), call.scratch, call.native);
}

}  // namespace

void register_cuda_scan_kernels() {
#define SHMAP_SET(name, domain)                                           \
  name##_p.kernel(DeviceKind::cuda) = {.run = run_scan<Cumulative::name>, \
                                       .scratch = scan_scratch<Cumulative::name>};
  SHMAP_CUMULATIVES(SHMAP_SET)
#undef SHMAP_SET
}

}  // namespace shmap
