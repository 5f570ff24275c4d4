// gather and the scatters on CUDA devices.
#include "cuda/kernels/gather.h"

#include <algorithm>
#include <cstring>

#include "core/ops/gather_ops.h"
#include "core/ops/scatter.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/copy.h"
#include "cuda/kernels/fill.h"
#include "cuda/ops/call_operand.h"

namespace shmap {

namespace {

std::uint64_t bits_at(const void* element, int itemsize) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, static_cast<std::size_t>(itemsize));
  return bits;
}

bool contains(const IntList& list, std::int64_t d) {
  return std::find(list.begin(), list.end(), d) != list.end();
}

void run_gather(const KernelCall& call) {
  const auto& p = params_as<GatherParams>(call.params);
  const DType dtype = call.in_types[0].dtype();
  cuda::Slices s;
  s.dims = {p.offset_dims, p.collapsed_slice_dims, p.start_index_map, p.operand_batching_dims,
            p.start_indices_batching_dims};
  s.operand_shape = call.in_types[0].dims();
  s.indices_shape = call.in_types[1].dims();
  s.slice_sizes = p.slice_sizes;
  s.slices_shape = call.out_types[0].dims();
  s.index_dtype = call.in_types[1].dtype();
  s.clip = p.mode == GatherMode::clip;
  s.indices = call.in[1];
  const bool literal = cuda::is_literal(call, 0);
  std::uint64_t fill = 0;
  if (literal)
    fill = bits_at(call.in[0], itemsize(dtype));
  else if (p.mode == GatherMode::fill)
    fill = none_bits(dtype);
  cuda::gather(s, itemsize(dtype), literal ? nullptr : call.in[0], fill, call.out[0], call.native);
}

// The description without the addresses of literals.
template <cuda::ScatterOp op>
cuda::Scatter scatter_of(const KernelCall& call) {
  const auto& p = params_as<ScatterAddParams>(call.params);
  cuda::Scatter s;
  s.op = op;
  s.slices.dims = {p.update_window_dims, p.inserted_window_dims, p.scatter_dims_to_operand_dims,
                   p.operand_batching_dims, p.scatter_indices_batching_dims};
  s.slices.operand_shape = call.in_types[0].dims();
  s.slices.indices_shape = call.in_types[1].dims();
  s.slices.slices_shape = call.in_types[2].dims();
  s.slices.index_dtype = call.in_types[1].dtype();
  s.slices.clip = p.clip;
  s.slices.indices = call.in[1];
  std::size_t window = 0;
  for (std::int64_t d = 0; d < s.slices.operand_shape.rank(); ++d) {
    const bool is_window =
        !contains(p.inserted_window_dims, d) && !contains(p.operand_batching_dims, d);
    s.slices.slice_sizes.push_back(
        is_window ? s.slices.slices_shape[static_cast<std::size_t>(p.update_window_dims[window++])]
                  : 1);
  }
  s.dtype = call.out_types[0].dtype();
  s.operand = call.out[0];
  s.updates = call.in[2];
  if (cuda::is_literal(call, 2)) {
    s.updates = nullptr;
    s.literal = bits_at(call.in[2], itemsize(s.dtype));
  }
  return s;
}

template <cuda::ScatterOp op>
std::int64_t scatter_scratch(const KernelCall& call) {
  return cuda::scatter_scratch(scatter_of<op>(call));
}

template <cuda::ScatterOp op>
void run_scatter(const KernelCall& call) {
  if (call.out_types[0].size() == 0) return;
  if (call.out_types[0].rank() == 0) {
    cuda::fill(call.out[0], cuda::element_of(call, 0), itemsize(call.out_types[0].dtype()), 1,
               call.native);
  } else if (call.in[0] != call.out[0]) {
    cuda::copy_bytes(call.out[0], call.in[0], call.out_types[0].nbytes(), call.native);
  }
  cuda::scatter(scatter_of<op>(call), call.scratch, call.native);
}

template <cuda::ScatterOp op>
void set_kernel(Primitive& primitive) {
  Kernel& kernel = primitive.kernel(DeviceKind::cuda);
  kernel.run = run_scatter<op>;
  kernel.scratch = scatter_scratch<op>;
}

}  // namespace

void register_cuda_gather_kernels() {
  gather_p.kernel(DeviceKind::cuda) = {run_gather};
  set_kernel<cuda::ScatterOp::set>(scatter_p);
  set_kernel<cuda::ScatterOp::add>(scatter_add_p);
  set_kernel<cuda::ScatterOp::mul>(scatter_mul_p);
  set_kernel<cuda::ScatterOp::min>(scatter_min_p);
  set_kernel<cuda::ScatterOp::max>(scatter_max_p);
}

}  // namespace shmap
