// Cumulative operations on the CPU.
#include <algorithm>

#include "core/cpu/kernels/scan.h"
#include "core/ops/scan.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

constexpr std::int64_t kPartElements = 16 * 1024;  // less is not worth another thread

struct Extents {
  std::int64_t outer = 1, len = 0, inner = 1;

  explicit Extents(const KernelCall& call) {
    const Shape& dims = call.in_types[0].dims();
    const auto axis = static_cast<std::size_t>(params_as<ScanParams>(call.params).axis);
    for (std::size_t d = 0; d < axis; ++d) outer *= dims[d];
    len = dims[axis];
    for (std::size_t d = axis + 1; d < dims.size(); ++d) inner *= dims[d];
  }
};

int scan_parts(const KernelCall& call, int workers) {
  const Extents e(call);
  const std::int64_t most =
      std::clamp<std::int64_t>(call.in_types[0].size() / kPartElements, 1, workers);
  return static_cast<int>(std::clamp<std::int64_t>(e.outer, 1, most));
}

template <cpu::ScanOp op>
void run_scan(const KernelCall& call) {
  const Extents e(call);
  const DType dtype = call.in_types[0].dtype();
  const auto [begin, end] = call.share(e.outer);
  const std::int64_t offset = begin * e.len * e.inner * itemsize(dtype);
  if (begin == end || e.len * e.inner == 0) return;
  cpu::scan_kernel(op, dtype)(static_cast<const std::byte*>(call.in[0]) + offset,
                              static_cast<std::byte*>(call.out[0]) + offset, end - begin, e.len,
                              e.inner, params_as<ScanParams>(call.params).reverse);
}

template <cpu::ScanOp op>
void set(Primitive& p) {
  p.kernel(DeviceKind::cpu) = {run_scan<op>, scan_parts};
}

}  // namespace

void register_cpu_scan_kernels() {
  set<cpu::ScanOp::cumsum>(cumsum_p);
  set<cpu::ScanOp::cumprod>(cumprod_p);
  set<cpu::ScanOp::cummax>(cummax_p);
  set<cpu::ScanOp::cummin>(cummin_p);
  set<cpu::ScanOp::cumlogsumexp>(cumlogsumexp_p);
}

}  // namespace shmap
