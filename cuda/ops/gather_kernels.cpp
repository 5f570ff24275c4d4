// gather and the scatters on CUDA devices.
#include "cuda/kernels/indexing/gather.h"

#include <cstring>

#include "core/ops/call_slices.h"
#include "core/ops/gather_ops.h"
#include "core/ops/scatter.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/elementwise/fill.h"
#include "cuda/kernels/move/copy.h"
#include "cuda/ops/call_operand.h"

namespace shmap {

namespace {

std::uint64_t bits_at(const void* element, int itemsize) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, static_cast<std::size_t>(itemsize));
  return bits;
}

void run_gather(const KernelCall& call) {
  const auto& p = params_as<GatherParams>(call.params);
  const DType dtype = call.in_types[0].dtype();
  const bool literal = cuda::is_literal(call, 0);
  std::uint64_t fill = 0;
  if (literal)
    fill = bits_at(call.in[0], itemsize(dtype));
  else if (p.mode == GatherMode::fill)
    fill = none_bits(dtype);
  cuda::gather(slices_of_gather(call, p, call.out_types[0].dims()), itemsize(dtype),
               literal ? nullptr : call.in[0], fill, call.out[0], call.native);
}

// The description without the addresses of literals.
cuda::Scatter scatter_of(const KernelCall& call, ScatterKind op) {
  cuda::Scatter s;
  s.op = op;
  s.slices = slices_of_scatter(call);
  s.dtype = call.out_types[0].dtype();
  s.operand = call.out[0];
  s.updates = call.in[2];
  if (cuda::is_literal(call, 2)) {
    s.updates = nullptr;
    s.literal = bits_at(call.in[2], itemsize(s.dtype));
  }
  return s;
}

template <ScatterKind op>
std::int64_t scatter_scratch(const KernelCall& call) {
  return cuda::scatter_scratch(scatter_of(call, op));
}

template <ScatterKind op>
void run_scatter(const KernelCall& call) {
  if (call.out_types[0].size() == 0) return;
  if (call.out_types[0].rank() == 0) {
    cuda::fill(call.out[0], cuda::element_of(call, 0), itemsize(call.out_types[0].dtype()), 1,
               call.native);
  } else if (call.in[0] != call.out[0]) {
    cuda::copy_bytes(call.out[0], call.in[0], call.out_types[0].nbytes(), call.native);
  }
  cuda::scatter(scatter_of(call, op), call.scratch, call.native);
}

template <ScatterKind op>
void set_kernel(Primitive& primitive) {
  primitive.kernel(DeviceKind::cuda) = {.run = run_scatter<op>, .scratch = scatter_scratch<op>};
}

}  // namespace

void register_cuda_gather_kernels() {
  gather_p.kernel(DeviceKind::cuda) = {run_gather};
  set_kernel<ScatterKind::set>(scatter_p);
  set_kernel<ScatterKind::add>(scatter_add_p);
  set_kernel<ScatterKind::mul>(scatter_mul_p);
  set_kernel<ScatterKind::min>(scatter_min_p);
  set_kernel<ScatterKind::max>(scatter_max_p);
}

}  // namespace shmap
