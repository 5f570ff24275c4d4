// reshape, transpose, rev, concatenate, pad and slice on CUDA devices: strided copies.
#include <algorithm>

#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/copy.h"
#include "cuda/kernels/pad.h"
#include "cuda/ops/call_operand.h"
#include "cuda/ops/literal_copy.h"

namespace shmap {

namespace {

// A row-major result, and an operand of strides that are to be set.
cuda::StridedCopy copy_to_result(const KernelCall& call) {
  const Shape& to = call.out_types[0].dims();
  cuda::StridedCopy copy;
  copy.rank = to.rank();
  copy.itemsize = itemsize(call.out_types[0].dtype());
  copy.src = call.in[0];
  copy.dst = call.out[0];
  std::copy(to.begin(), to.end(), copy.extent);
  cuda::row_major_strides(copy.rank, copy.extent, copy.itemsize, copy.dst_stride);
  return copy;
}

void run_transpose(const KernelCall& call) {
  cuda::StridedCopy copy = copy_to_result(call);
  const Dims& permutation = params_as<TransposeParams>(call.params).permutation;
  std::int64_t stride[kMaxRank];
  cuda::row_major_strides(copy.rank, call.in_types[0].dims().data(), copy.itemsize, stride);
  for (std::size_t d = 0; d < permutation.size(); ++d) copy.src_stride[d] = stride[permutation[d]];
  cuda::copy_strided(copy, call.native);
}

void run_rev(const KernelCall& call) {
  cuda::StridedCopy copy = copy_to_result(call);
  std::copy_n(copy.dst_stride, copy.rank, copy.src_stride);
  const auto* src = static_cast<const std::byte*>(copy.src);
  for (std::int64_t d : params_as<RevParams>(call.params).dimensions) {
    src += (copy.extent[d] - 1) * copy.src_stride[d];
    copy.src_stride[d] = -copy.src_stride[d];
  }
  copy.src = src;
  cuda::copy_strided(copy, call.native);
}

void run_slice(const KernelCall& call) {
  const auto& params = params_as<SliceParams>(call.params);
  cuda::StridedCopy copy = copy_to_result(call);
  cuda::row_major_strides(copy.rank, call.in_types[0].dims().data(), copy.itemsize,
                          copy.src_stride);
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < call.out_types[0].dims().size(); ++d) {
    offset += params.start_indices[d] * copy.src_stride[d];
    copy.src_stride[d] *= params.strides[d];
  }
  copy.src = static_cast<const std::byte*>(call.in[0]) + offset;
  cuda::copy_strided(copy, call.native);
}

// Each operand's rows into the result's: both are [outer, what follows from the joined dim on].
void run_concatenate(const KernelCall& call) {
  const auto dim = static_cast<std::size_t>(params_as<ConcatenateParams>(call.params).dimension);
  const Shape& to = call.out_types[0].dims();
  const std::int64_t item = itemsize(call.out_types[0].dtype());
  std::int64_t outer = 1, row = item, at = 0;
  for (std::size_t d = 0; d < dim; ++d) outer *= to[d];
  for (std::size_t d = dim; d < to.size(); ++d) row *= to[d];
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    if (call.in_types[i].size() == 0) continue;
    cuda::StridedCopy copy;
    copy.rank = 2;
    copy.itemsize = static_cast<int>(item);
    copy.extent[0] = outer;
    copy.extent[1] = call.in_types[i].size() / outer;
    copy.dst_stride[0] = row;
    copy.src_stride[0] = copy.extent[1] * item;
    copy.dst_stride[1] = copy.src_stride[1] = item;
    copy.src = call.in[i];
    copy.dst = static_cast<std::byte*>(call.out[0]) + at;
    cuda::copy_strided(copy, call.native);
    at += copy.src_stride[0];
  }
}

void run_pad(const KernelCall& call) {
  const auto& params = params_as<PadParams>(call.params);
  const Shape &from = call.in_types[0].dims(), &to = call.out_types[0].dims();
  cuda::Pad pad;
  pad.rank = from.rank();
  pad.itemsize = itemsize(call.in_types[0].dtype());
  std::copy(from.begin(), from.end(), pad.extent);
  std::copy(to.begin(), to.end(), pad.padded);
  std::copy(params.low.begin(), params.low.end(), pad.low);
  std::copy(params.interior.begin(), params.interior.end(), pad.interior);
  pad.src = call.in[0];
  pad.value = cuda::element_of(call, 1);
  pad.dst = call.out[0];
  cuda::pad(pad, call.native);
}

}  // namespace

void register_cuda_shape_kernels() {
  reshape_p.kernel(DeviceKind::cuda) = {cuda::run_literal_copy};
  transpose_p.kernel(DeviceKind::cuda) = {run_transpose};
  rev_p.kernel(DeviceKind::cuda) = {run_rev};
  slice_p.kernel(DeviceKind::cuda) = {run_slice};
  concatenate_p.kernel(DeviceKind::cuda) = {run_concatenate};
  pad_p.kernel(DeviceKind::cuda) = {run_pad};
}

}  // namespace shmap
