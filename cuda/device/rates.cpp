// The rates by which schedules for GPUs are made. They are those of a CPU, since only their ratios
// matter and no schedule was measured with others. An H200's ratio is another: by bench/RESULTS.md
// ("On one GPU") it makes 765,000 flops of a large bf16 product in a nanosecond (the row
// matmul_8192x8192x8192) and moves 4,200 bytes (psum_64mb), 182 flops for a byte in place of 5.
#include "core/runtime/rates.h"

namespace shmap {

void register_cuda_rates() {
  set_rates(DeviceKind::cuda, {.flops_per_ns = 60, .bytes_per_ns = 12, .link_bytes_per_ns = 8});
}

}  // namespace shmap
