// What the CPU does with raw memory beside the kernels of primitives.
#include "core/runtime/device_ops.h"

#include <algorithm>
#include <cstring>

#include "core/cpu/kernels/copy.h"

namespace shmap {

namespace {

void copy_box(const BoxCopy& box, int part, int parts, void*) {
  cpu::StridedCopy copy;
  copy.rank = box.rank;
  std::copy_n(box.extent, box.rank, copy.extent);
  std::copy_n(box.dst_stride, box.rank, copy.dst_stride);
  std::copy_n(box.src_stride, box.rank, copy.src_stride);
  copy.itemsize = box.itemsize;
  copy.src = box.src;
  copy.dst = box.dst;
  cpu::copy_strided_part(copy, part, parts);
}

void zero(void* dst, std::int64_t bytes, void*) {
  std::memset(dst, 0, static_cast<std::size_t>(bytes));
}
void copy(void* dst, const void* src, std::int64_t bytes, void*) {
  cpu::copy_bytes(dst, src, bytes);
}
void host_copy(void* dst, const void* src, std::int64_t bytes) { cpu::copy_bytes(dst, src, bytes); }

}  // namespace

void register_cpu_device_ops() {
  device_ops(BackendKind::cpu) = {copy_box, nullptr, zero, copy, host_copy, host_copy};
}

}  // namespace shmap
