// The CPU's functions that work on raw memory and are not kernels of primitives.
#include "core/runtime/device_ops.h"

#include <cstring>
#include <vector>

#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/move/copy.h"
#include "core/cpu/kernels/reduce/combine.h"
#include "core/cpu/kernels/vector/non_temporal.h"

namespace shmap {

namespace {

void copy_box(const StridedCopy& box, int part, int parts, void*) {
  cpu::copy_strided_part(box, part, parts);
}

// Sums of this many bytes or more are written past the caches.
constexpr std::int64_t kStreamedSumBytes = std::int64_t{8} << 20;

void combine(Reduction op, DType dtype, const void* const* ranks, int n, void* out,
             std::int64_t begin, std::int64_t end, void*) {
  const bool large = (end - begin) * itemsize(dtype) >= kStreamedSumBytes;
  cpu::combine_ranks(op, dtype, ranks, n, out, begin, end, large);
}

void zero(void* dst, std::int64_t bytes, void*) {
  std::memset(dst, 0, static_cast<std::size_t>(bytes));
}
void copy(void* dst, const void* src, std::int64_t bytes, void*) {
  cpu::copy_bytes(dst, src, bytes);
}
void copy_streaming(void* dst, const void* src, std::int64_t bytes, void*) {
  cpu::copy_non_temporal(dst, src, bytes);
}
void read_on_host(std::span<const HostRead> values, const Ref<HostReader>& reader, void*) {
  std::vector<const void*> at;
  for (const HostRead& value : values) at.push_back(value.from);
  reader->read(at);
}
void host_copy(void* dst, const void* src, std::int64_t bytes) { cpu::copy_bytes(dst, src, bytes); }

}  // namespace

void register_cpu_device_ops() {
  DeviceOps& ops = device_ops(DeviceKind::cpu);
  ops.copy_box = copy_box;
  ops.combine = combine;
  ops.zero = zero;
  ops.copy = copy;
  ops.copy_streaming = copy_streaming;
  ops.host_to_device = host_copy;
  ops.device_to_host = host_copy;
  ops.read_on_host = read_on_host;
}

}  // namespace shmap
