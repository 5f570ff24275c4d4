// Cumulative operations on the CPU.
#include <algorithm>

#include "core/cpu/kernels/reduce/scan.h"
#include "core/ops/lines.h"
#include "core/ops/scan.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

constexpr std::int64_t kScanPartElements = 16 * 1024;  // fewer elements are not worth another
                                                       // thread

Lines scanned_lines(const KernelCall& call) {
  return {call.in_types[0].dims(), params_as<ScanParams>(call.params).axis};
}

// The most parts of one line. A part reads everything before it, so that more parts would mostly
// read.
constexpr int kMostRanges = 8;

template <Cumulative op>
int scan_parts(const KernelCall& call, int workers) {
  const Lines lines = scanned_lines(call);
  const std::int64_t most =
      std::clamp<std::int64_t>(call.in_types[0].size() / kScanPartElements, 1, workers);
  const bool ranges =
      lines.outer == 1 && lines.inner == 1 && cpu::scans_ranges(op, call.in_types[0].dtype());
  return static_cast<int>(std::clamp<std::int64_t>(ranges ? kMostRanges : lines.outer, 1, most));
}

template <Cumulative op>
void run_scan(const KernelCall& call) {
  const Lines lines = scanned_lines(call);
  const DType dtype = call.in_types[0].dtype();
  const bool reverse = params_as<ScanParams>(call.params).reverse;
  if (lines.empty()) return;
  // In place, a part would read elements that another part has overwritten; part 0 then takes the
  // whole line.
  if (lines.outer == 1 && call.parts > 1 && call.in[0] != call.out[0]) {
    const auto [begin, end] = call.share(lines.length);
    return cpu::scan_range(op, dtype, call.in[0], call.out[0], lines.length, reverse, begin, end);
  }
  const auto [begin, end] = call.share(lines.outer);
  const std::int64_t offset = begin * lines.length * lines.inner * itemsize(dtype);
  if (begin == end) return;
  cpu::scan_kernel(op, dtype)(static_cast<const std::byte*>(call.in[0]) + offset,
                              static_cast<std::byte*>(call.out[0]) + offset, end - begin,
                              lines.length, lines.inner, reverse);
}

template <Cumulative op>
void set(Primitive& p) {
  p.kernel(DeviceKind::cpu) = {run_scan<op>, scan_parts<op>};
}

}  // namespace

void register_cpu_scan_kernels() {
#define SHMAP_SET(name, domain)                                                            \
  check_kernels(#name, Domain::domain,                                                     \
                [](DType t) { return cpu::scan_kernel(Cumulative::name, t) != nullptr; }); \
  set<Cumulative::name>(name##_p);
  SHMAP_CUMULATIVES(SHMAP_SET)
#undef SHMAP_SET
}

}  // namespace shmap
