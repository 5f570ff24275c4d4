// gather and the scatters on the CPU.
#include "core/cpu/kernels/gather.h"

#include "core/cpu/kernels/scatter.h"
#include "core/ops/gather_ops.h"
#include "core/ops/scatter.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

cpu::Gather gather_of(const KernelCall& call) {
  const auto& p = params_as<GatherParams>(call.params);
  cpu::Gather g;
  g.dims = {p.offset_dims, p.collapsed_slice_dims, p.start_index_map, p.operand_batching_dims,
            p.start_indices_batching_dims};
  g.operand_shape = call.in_types[0].dims();
  g.indices_shape = call.in_types[1].dims();
  g.slice_sizes = p.slice_sizes;
  g.index_dtype = call.in_types[1].dtype();
  g.mode = p.mode == GatherMode::clip ? cpu::IndexMode::clip : cpu::IndexMode::fill_or_drop;
  g.itemsize = itemsize(call.in_types[0].dtype());
  g.operand = call.in[0];
  g.indices = call.in[1];
  g.out = call.out[0];
  return g;
}

void run_gather(const KernelCall& call) {
  cpu::Gather g = gather_of(call);
  const bool zero = params_as<GatherParams>(call.params).mode == GatherMode::zero;
  const std::uint64_t fill = zero ? 0 : none_bits(call.in_types[0].dtype());
  g.fill = &fill;
  cpu::gather_part(g, call.part, call.parts);
}

int gather_parts(const KernelCall& call, int workers) {
  return cpu::gather_parts(gather_of(call), workers);
}

template <cpu::ScatterOp op>
cpu::Scatter scatter_of(const KernelCall& call) {
  const auto& p = params_as<ScatterAddParams>(call.params);
  cpu::Scatter s;
  s.op = op;
  s.dims = {p.update_window_dims, p.inserted_window_dims, p.scatter_dims_to_operand_dims,
            p.operand_batching_dims, p.scatter_indices_batching_dims};
  s.dtype = call.out_types[0].dtype();
  s.operand_shape = call.in_types[0].dims();
  s.indices_shape = call.in_types[1].dims();
  s.updates_shape = call.in_types[2].dims();
  s.index_dtype = call.in_types[1].dtype();
  s.mode = p.clip ? cpu::IndexMode::clip : cpu::IndexMode::fill_or_drop;
  s.operand = call.out[0];
  s.indices = call.in[1];
  s.updates = call.in[2];
  return s;
}

template <cpu::ScatterOp op>
void run_scatter(const KernelCall& call) {
  if (call.out_types[0].size() == 0) return;
  const cpu::Scatter s = scatter_of<op>(call);
  if (call.in[0] != call.out[0]) cpu::copy_scatter_part(s, call.in[0], call.part, call.parts);
  cpu::scatter_part(s, call.part, call.parts);
}

int scatter_parts(const KernelCall& call, int workers) {
  return call.out_types[0].size() == 0
             ? 1
             : cpu::scatter_parts(scatter_of<cpu::ScatterOp::set>(call), workers);
}

}  // namespace

void register_cpu_gather_kernels() {
  gather_p.kernel(DeviceKind::cpu) = {run_gather, gather_parts};
  scatter_p.kernel(DeviceKind::cpu) = {run_scatter<cpu::ScatterOp::set>, scatter_parts};
  scatter_add_p.kernel(DeviceKind::cpu) = {run_scatter<cpu::ScatterOp::add>, scatter_parts};
  scatter_mul_p.kernel(DeviceKind::cpu) = {run_scatter<cpu::ScatterOp::mul>, scatter_parts};
  scatter_min_p.kernel(DeviceKind::cpu) = {run_scatter<cpu::ScatterOp::min>, scatter_parts};
  scatter_max_p.kernel(DeviceKind::cpu) = {run_scatter<cpu::ScatterOp::max>, scatter_parts};
}

}  // namespace shmap
