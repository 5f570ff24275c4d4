// Estimated rates of one CPU core.
#include "core/runtime/rates.h"

namespace shmap {

void register_cpu_rates() {
  set_rates(DeviceKind::cpu, {.flops_per_ns = 60, .bytes_per_ns = 12, .link_bytes_per_ns = 8});
}

}  // namespace shmap
