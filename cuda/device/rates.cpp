// Estimated rates of a GPU, as multiples of a CPU's; nothing better was measured.
#include "core/runtime/rates.h"

namespace shmap {

void register_cuda_rates() {
  set_rates(DeviceKind::cuda, {.flops_per_ns = 60, .bytes_per_ns = 12, .link_bytes_per_ns = 8});
}

}  // namespace shmap
