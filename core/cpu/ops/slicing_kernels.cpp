// slice, dynamic_slice and dynamic_update_slice on the CPU.
#include <algorithm>

#include "core/cpu/kernels/indexing/gather_index.h"
#include "core/cpu/kernels/move/copy.h"
#include "core/ops/call_copies.h"
#include "core/ops/slicing.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

// Returns the byte offset in `whole` of a box of shape `part` that begins at the operands from
// `first` on.
std::int64_t dynamic_offset(const KernelCall& call, std::size_t first, const Shape& whole,
                            const Shape& part, const std::int64_t* stride) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    const auto read = cpu::index_reader(call.in_types[first + d].dtype());
    offset += clamp_start(read(call.in[first + d], 0), whole[d], part[d]) * stride[d];
  }
  return offset;
}

StridedCopy dynamic_slice_copy(const KernelCall& call) {
  const Shape &from = call.in_types[0].dims(), &to = call.out_types[0].dims();
  StridedCopy copy = box_copy(to, from, to, itemsize(call.out_types[0].dtype()));
  copy.src = static_cast<const std::byte*>(call.in[0]) +
             dynamic_offset(call, 1, from, to, copy.src_stride);
  copy.dst = call.out[0];
  return copy;
}

template <StridedCopy (*make)(const KernelCall&)>
void run_slice(const KernelCall& call) {
  if (call.out_types[0].size() == 0) return;
  cpu::copy_strided_part(make(call), call.part, call.parts);
}
// Depends on the result's extents only, since the starts are not known before the call runs.
int parts_of_copy(const KernelCall& call, int workers) {
  const Shape& to = call.out_types[0].dims();
  if (call.out_types[0].size() == 0) return 1;
  return cpu::copy_parts(
      box_copy(to, call.in_types[0].dims(), to, itemsize(call.out_types[0].dtype())), workers);
}

// The outermost dim with more than one item, whose rows are split among the parts.
std::size_t row_dim(const Shape& shape) {
  std::size_t d = 0;
  while (d + 1 < shape.size() && shape[d] == 1) ++d;
  return d;
}

// Each part copies its rows of the operand, unless the result overwrites the operand, and then
// those rows of the update that are within its rows.
void run_dynamic_update_slice(const KernelCall& call) {
  const Shape &whole = call.out_types[0].dims(), &part = call.in_types[1].dims();
  const int item = itemsize(call.out_types[0].dtype());
  if (call.out_types[0].size() == 0) return;
  auto* const out = static_cast<std::byte*>(call.out[0]);
  if (whole.empty()) {
    cpu::copy_bytes(out, call.in[1], item);
    return;
  }
  const std::size_t rows = row_dim(whole);
  const auto [begin, end] = call.share(whole[rows]);
  StridedCopy copy = box_copy(part, part, whole, item);
  if (call.in[0] != call.out[0]) {
    const std::int64_t at = begin * copy.dst_stride[rows];
    cpu::copy_bytes(out + at, static_cast<const std::byte*>(call.in[0]) + at,
                    (end - begin) * copy.dst_stride[rows]);
  }
  if (call.in_types[1].size() == 0) return;
  const std::int64_t offset = dynamic_offset(call, 2, whole, part, copy.dst_stride);
  const auto read = cpu::index_reader(call.in_types[2 + rows].dtype());
  const std::int64_t start = clamp_start(read(call.in[2 + rows], 0), whole[rows], part[rows]);
  const std::int64_t first = std::max(begin, start), last = std::min(end, start + part[rows]);
  if (first >= last) return;
  copy.extent[rows] = last - first;
  copy.src = static_cast<const std::byte*>(call.in[1]) + (first - start) * copy.src_stride[rows];
  copy.dst = out + offset + (first - start) * copy.dst_stride[rows];
  cpu::copy_strided(copy);
}

int dynamic_update_slice_parts(const KernelCall& call, int workers) {
  const Shape& whole = call.out_types[0].dims();
  if (whole.empty() || call.out_types[0].size() == 0) return 1;
  const bool in_place = call.in[0] == call.out[0];
  const Shape& moved = in_place ? call.in_types[1].dims() : whole;
  const int parts =
      cpu::copy_parts(box_copy(moved, moved, whole, itemsize(call.out_types[0].dtype())), workers);
  return static_cast<int>(std::min<std::int64_t>(parts, whole[row_dim(whole)]));
}

}  // namespace

void register_cpu_slicing_kernels() {
  constexpr DeviceKind cpu = DeviceKind::cpu;
  slice_p.kernel(cpu) = {run_slice<slice_copy>, parts_of_copy};
  dynamic_slice_p.kernel(cpu) = {run_slice<dynamic_slice_copy>, parts_of_copy};
  dynamic_update_slice_p.kernel(cpu) = {run_dynamic_update_slice, dynamic_update_slice_parts};
}

}  // namespace shmap
