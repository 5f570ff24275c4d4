// gather and the scatters on the CPU.
#include "core/cpu/kernels/indexing/gather.h"

#include <algorithm>
#include <vector>

#include "core/base/thread_kept.h"
#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/indexing/scatter.h"
#include "core/cpu/kernels/reduce/reduce.h"
#include "core/ops/call_slices.h"
#include "core/ops/gather_ops.h"
#include "core/ops/gather_reduce.h"
#include "core/ops/reduce.h"
#include "core/ops/reduce_groups.h"
#include "core/ops/scatter.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

cpu::Gather gather_of(const KernelCall& call, const GatherParams& p, const Shape& stacked) {
  return {slices_of_gather(call, p, stacked), itemsize(call.in_types[0].dtype()), call.in[0],
          nullptr, call.out[0]};
}
cpu::Gather gather_of(const KernelCall& call) {
  return gather_of(call, params_as<GatherParams>(call.params), call.out_types[0].dims());
}

std::uint64_t fill_of(const KernelCall& call, const GatherParams& p) {
  return p.mode == GatherMode::zero ? 0 : none_bits(call.in_types[0].dtype());
}

void run_gather(const KernelCall& call) {
  const auto& p = params_as<GatherParams>(call.params);
  cpu::Gather g = gather_of(call);
  const std::uint64_t fill = fill_of(call, p);
  g.fill = &fill;
  cpu::gather_part(g, call.part, call.parts);
}

int gather_parts(const KernelCall& call, int workers) {
  return cpu::gather_parts(gather_of(call), workers);
}

// Memory that each thread keeps: addresses of slices, a filled slice, and gathered slices.
struct GatherRoom {
  std::vector<const void*> rows;
  std::vector<std::byte> filled, taken;
};

// Computes some results at a time. Slices that consist of whole rows of the reduction are read from
// the operand; other slices are first gathered to memory that stays in a near cache.
void run_gather_reduce(const KernelCall& call) {
  constexpr std::int64_t kChunkBytes = 32 * 1024, kChunkRows = 1024;
  const auto& p = params_as<GatherReduceParams>(call.params);
  const ReduceGroups groups(p.gathered.dims(), p.axes);
  const DType dtype = p.gathered.dtype();
  const Reduction op = *p.reduction->reduction;
  const std::int64_t reduced = groups.reduced[0], inner = groups.kept[1], item = itemsize(dtype);
  const std::int64_t slab = reduced * inner * item;
  cpu::Gather g = gather_of(call, p.gather, p.gathered.dims());
  const std::uint64_t fill = fill_of(call, p.gather);
  g.fill = &fill;
  std::int64_t slices = 1;  // slices that form one result
  for (std::size_t d = 0; d + 1 < g.indices_shape.size(); ++d) slices *= g.indices_shape[d];
  slices /= groups.kept[0];
  const auto [begin, end] = call.share(groups.kept[0]);
  std::byte* to = static_cast<std::byte*>(call.out[0]) + begin * inner * item;
  GatherRoom& room = kept_by_thread<GatherRoom>();

  const bool apart = slices > 0 && reduced % slices == 0 && cpu::reduces_rows_apart(reduced, inner);
  if (const std::int64_t each = apart ? reduced / slices : 0; each > 0) {  // slices are rows
    const std::int64_t most = std::max<std::int64_t>(1, kChunkRows / reduced), row = inner * item;
    room.rows.resize(static_cast<std::size_t>(most * reduced));
    room.filled.resize(static_cast<std::size_t>(each * row));
    cpu::fill(room.filled.data(), g.fill, static_cast<int>(item), each * inner);
    std::int64_t i = begin;
    for (; i < end; i += most) {
      const std::int64_t n = std::min(most, end - i), found = n * slices;
      const void** const rows = room.rows.data();
      if (!cpu::find_slices(g, i * slices, i * slices + found, room.filled.data(), rows)) break;
      for (std::int64_t s = found - 1; each > 1 && s >= 0; --s) {
        const auto* const slice = static_cast<const std::byte*>(rows[s]);
        for (std::int64_t r = each - 1; r >= 0; --r) rows[s * each + r] = slice + r * row;
      }
      cpu::reduce_rows_apart(op, dtype, rows, to, n, reduced, inner);
      to += n * row;
    }
    if (i >= end) return;
  }

  const std::int64_t chunk = std::max<std::int64_t>(1, kChunkBytes / slab);
  const cpu::ReduceFn reduce = cpu::reduce_kernel(op, dtype);
  if (static_cast<std::int64_t>(room.taken.size()) < chunk * slab)
    room.taken.resize(static_cast<std::size_t>(chunk * slab));
  for (std::int64_t i = begin; i < end; i += chunk) {
    const std::int64_t n = std::min(chunk, end - i);
    cpu::gather_slices(g, i * slices, (i + n) * slices, room.taken.data());
    reduce(room.taken.data(), to, n, reduced, inner);
    to += n * inner * item;
  }
}

int gather_reduce_parts(const KernelCall& call, int workers) {
  constexpr std::int64_t kPartBytes = 64 * 1024;  // fewer bytes are not worth another thread
  const auto& p = params_as<GatherReduceParams>(call.params);
  const ReduceGroups groups(p.gathered.dims(), p.axes);
  const std::int64_t most = std::min<std::int64_t>(workers, groups.kept[0]);
  return static_cast<int>(std::clamp<std::int64_t>(p.gathered.nbytes() / kPartBytes, 1, most));
}

cpu::Scatter scatter_of(const KernelCall& call, ScatterKind op) {
  return {slices_of_scatter(call), op, call.out_types[0].dtype(), call.out[0], call.in[2]};
}

template <ScatterKind op>
void run_scatter(const KernelCall& call) {
  if (call.out_types[0].size() == 0) return;
  const cpu::Scatter s = scatter_of(call, op);
  if (call.scratch != nullptr) {
    const auto [begin, end] = call.share(cpu::scatter_block_count(s));
    return cpu::scatter_to_sums(s, call.in[0], begin, end, call.scratch);
  }
  if (call.in[0] != call.out[0]) cpu::copy_scatter_part(s, call.in[0], call.part, call.parts);
  cpu::scatter_part(s, call.part, call.parts);
}

template <ScatterKind op>
int scatter_parts(const KernelCall& call, int workers) {
  return call.out_types[0].size() == 0 ? 1 : cpu::scatter_parts(scatter_of(call, op), workers);
}

std::int64_t scatter_scratch(const KernelCall& call) {
  if (call.out_types[0].size() == 0) return 0;
  const std::int64_t blocks = cpu::scatter_block_count(scatter_of(call, ScatterKind::add));
  return blocks > 1 ? blocks * call.out_types[0].nbytes() : 0;
}

void finish_scatter(const KernelCall& call) {
  cpu::add_scatter_sums(scatter_of(call, ScatterKind::add), call.scratch);
}

}  // namespace

void register_cpu_gather_kernels() {
  gather_p.kernel(DeviceKind::cpu) = {run_gather, gather_parts};
  gather_reduce_p.kernel(DeviceKind::cpu) = {run_gather_reduce, gather_reduce_parts};
  scatter_p.kernel(DeviceKind::cpu) = {run_scatter<ScatterKind::set>,
                                       scatter_parts<ScatterKind::set>};
  scatter_add_p.kernel(DeviceKind::cpu) = {run_scatter<ScatterKind::add>,
                                           scatter_parts<ScatterKind::add>, scatter_scratch,
                                           finish_scatter};
  scatter_mul_p.kernel(DeviceKind::cpu) = {run_scatter<ScatterKind::mul>,
                                           scatter_parts<ScatterKind::mul>};
  scatter_min_p.kernel(DeviceKind::cpu) = {run_scatter<ScatterKind::min>,
                                           scatter_parts<ScatterKind::min>};
  scatter_max_p.kernel(DeviceKind::cpu) = {run_scatter<ScatterKind::max>,
                                           scatter_parts<ScatterKind::max>};
}

}  // namespace shmap
