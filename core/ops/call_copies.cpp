#include "core/ops/call_copies.h"

#include <algorithm>

#include "core/ops/concatenate_slices.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"

namespace shmap {

namespace {

// A copy to a row-major result; the operand's strides are set by the caller.
StridedCopy copy_to_result(const KernelCall& call) {
  const Shape& to = call.out_types[0].dims();
  StridedCopy copy;
  copy.rank = to.rank();
  copy.itemsize = itemsize(call.out_types[0].dtype());
  copy.src = call.in[0];
  copy.dst = call.out[0];
  std::copy(to.begin(), to.end(), copy.extent);
  row_major_strides(copy.rank, copy.extent, copy.itemsize, copy.dst_stride);
  return copy;
}

}  // namespace

StridedCopy broadcast_copy(const KernelCall& call) {
  StridedCopy copy = copy_to_result(call);
  const Shape& from = call.in_types[0].dims();
  const Dims& dims = params_as<BroadcastParams>(call.params).dims;
  std::fill_n(copy.src_stride, copy.rank, 0);
  std::int64_t stride = copy.itemsize;
  for (std::size_t d = from.size(); d-- > 0;) {
    if (from[d] != 1) copy.src_stride[dims[d]] = stride;
    stride *= from[d];
  }
  return copy;
}

StridedCopy transpose_copy(const KernelCall& call) {
  StridedCopy copy = copy_to_result(call);
  const Dims& permutation = params_as<TransposeParams>(call.params).permutation;
  std::int64_t stride[kMaxRank];
  row_major_strides(copy.rank, call.in_types[0].dims().data(), copy.itemsize, stride);
  for (std::size_t d = 0; d < permutation.size(); ++d) copy.src_stride[d] = stride[permutation[d]];
  return copy;
}

StridedCopy rev_copy(const KernelCall& call) {
  StridedCopy copy = copy_to_result(call);
  std::copy_n(copy.dst_stride, copy.rank, copy.src_stride);
  const auto* src = static_cast<const std::byte*>(copy.src);
  for (std::int64_t d : params_as<RevParams>(call.params).dimensions) {
    src += (copy.extent[d] - 1) * copy.src_stride[d];
    copy.src_stride[d] = -copy.src_stride[d];
  }
  copy.src = src;
  return copy;
}

StridedCopy slice_copy(const KernelCall& call) {
  const auto& params = params_as<SliceParams>(call.params);
  StridedCopy copy = copy_to_result(call);
  row_major_strides(copy.rank, call.in_types[0].dims().data(), copy.itemsize, copy.src_stride);
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < call.out_types[0].dims().size(); ++d) {
    offset += params.start_indices[d] * copy.src_stride[d];
    if (copy.extent[d] > 1) copy.src_stride[d] *= params.strides[d];
  }
  copy.src = static_cast<const std::byte*>(call.in[0]) + offset;
  return copy;
}

StridedCopy concatenate_copy(const KernelCall& call, std::size_t operand, std::int64_t at) {
  const auto dim = static_cast<std::size_t>(params_as<ConcatenateParams>(call.params).dimension);
  const Shape &from = call.in_types[operand].dims(), &to = call.out_types[0].dims();
  StridedCopy copy;
  copy.rank = 2;
  copy.itemsize = itemsize(call.out_types[0].dtype());
  copy.extent[0] = copy.extent[1] = 1;
  std::int64_t row = copy.itemsize;
  for (std::size_t d = 0; d < dim; ++d) copy.extent[0] *= to[d];
  for (std::size_t d = dim; d < to.size(); ++d) {
    copy.extent[1] *= from[d];
    row *= to[d];
  }
  copy.dst_stride[0] = row;
  copy.src_stride[0] = copy.extent[1] * copy.itemsize;
  copy.dst_stride[1] = copy.src_stride[1] = copy.itemsize;
  copy.src = call.in[operand];
  copy.dst = static_cast<std::byte*>(call.out[0]) + at;
  return copy;
}

StridedCopy concatenate_slice_copy(const KernelCall& call, std::size_t operand, std::int64_t at) {
  const auto& params = params_as<ConcatenateSlicesParams>(call.params);
  const SliceParams& slice = params.slices[operand];
  StridedCopy copy = copy_to_result(call);
  copy.dst = static_cast<std::byte*>(call.out[0]) + at * copy.dst_stride[params.dimension];
  row_major_strides(copy.rank, call.in_types[operand].dims().data(), copy.itemsize,
                    copy.src_stride);
  const auto* src = static_cast<const std::byte*>(call.in[operand]);
  const Shape extents = slice_extents(slice);
  for (std::size_t d = 0; d < extents.size(); ++d) {
    src += slice.start_indices[d] * copy.src_stride[d];
    copy.extent[d] = extents[d];
    if (extents[d] > 1) copy.src_stride[d] *= slice.strides[d];
  }
  copy.src = src;
  return copy;
}

Padding padding_of(const KernelCall& call) {
  const auto& params = params_as<PadParams>(call.params);
  const Shape &from = call.in_types[0].dims(), &to = call.out_types[0].dims();
  Padding p;
  p.rank = from.rank();
  p.itemsize = itemsize(call.in_types[0].dtype());
  std::copy(from.begin(), from.end(), p.extent);
  std::copy(to.begin(), to.end(), p.padded);
  std::copy(params.low.begin(), params.low.end(), p.low);
  std::copy(params.interior.begin(), params.interior.end(), p.interior);
  return p;
}

}  // namespace shmap
