// broadcast_in_dim and iota on the CPU.
#include <algorithm>
#include <cstring>

#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/move/copy.h"
#include "core/ops/call_copies.h"
#include "core/ops/lines.h"
#include "core/ops/shape_params.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

constexpr std::int64_t kFillGrain = 4096;

int fill_parts(const KernelCall& call, int workers) {
  return static_cast<int>(
      std::clamp<std::int64_t>(call.out_types[0].size() / (16 * kFillGrain), 1, workers));
}

std::byte* filled_at(const KernelCall& call, std::int64_t element) {
  return static_cast<std::byte*>(call.out[0]) + element * itemsize(call.out_types[0].dtype());
}

void run_broadcast(const KernelCall& call) {
  if (call.in_types[0].size() == 1) {
    const auto [begin, end] = call.share(call.out_types[0].size(), kFillGrain);
    cpu::fill(filled_at(call, begin), call.in[0], itemsize(call.out_types[0].dtype()), end - begin);
  } else {
    cpu::copy_strided_part(broadcast_copy(call), call.part, call.parts);
  }
}

int broadcast_parts(const KernelCall& call, int workers) {
  return call.in_types[0].size() == 1 ? fill_parts(call, workers)
                                      : cpu::copy_parts(broadcast_copy(call), workers);
}

// Writes rows of `n` runs of `inner` equal elements: computes the first row, and copies it to the
// others.
void run_iota(const KernelCall& call) {
  const DType dtype = call.out_types[0].dtype();
  const Shape& shape = call.out_types[0].dims();
  if (shape.size() == 1) {
    const auto [begin, end] = call.share(shape[0], kFillGrain);
    cpu::iota(dtype, filled_at(call, begin), end - begin, begin);
    return;
  }
  const auto [outer, n, inner] = Lines(shape, params_as<IotaParams>(call.params).dimension);
  const std::int64_t row = n * inner * itemsize(dtype);
  if (outer * row == 0) return;
  if (inner == 1) {
    cpu::iota(dtype, call.out[0], n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t value = 0;  // large enough for an element of any dtype
      cpu::iota(dtype, &value, 1, i);
      cpu::fill(filled_at(call, i * inner), &value, itemsize(dtype), inner);
    }
  }
  for (std::int64_t o = 1; o < outer; ++o)
    cpu::copy_bytes(static_cast<std::byte*>(call.out[0]) + o * row, call.out[0], row);
}

int iota_parts(const KernelCall& call, int workers) {
  return call.out_types[0].rank() == 1 ? fill_parts(call, workers) : 1;
}

}  // namespace

void register_cpu_creation_kernels() {
  constexpr DeviceKind cpu = DeviceKind::cpu;
  broadcast_in_dim_p.kernel(cpu) = {run_broadcast, broadcast_parts};
  iota_p.kernel(cpu) = {run_iota, iota_parts};
}

}  // namespace shmap
