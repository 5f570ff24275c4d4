// The operations on raw memory of CUDA devices, beside the kernels of primitives.
#include "core/runtime/device_ops.h"

#include <vector>

#include "cuda/device/host_copy.h"
#include "cuda/device/host_reads.h"
#include "cuda/device/staged_link.h"
#include "cuda/kernels/move/copy.h"
#include "cuda/kernels/reduce/combine.h"

namespace shmap {

namespace {

void copy_box(const StridedCopy& box, int part, int, void* native) {
  if (part == 0) cuda::copy_strided(box, native);  // one kernel does all parts
}

void copy_boxes(const StridedCopy& box, const void* const* from, void* const* to, int n,
                void* native) {
  cuda::copy_strided_boxes(box, from, to, n, native);
}

void combine_pieces(Reduction op, DType dtype, const void* const* ranks, int n,
                    std::span<const CombinedPiece> pieces, std::int64_t rows, std::int64_t length,
                    std::int64_t stride, void* native) {
  cuda::combine_ranks(op, dtype, ranks, n, pieces, rows, length, stride, native);
}

void combine(Reduction op, DType dtype, const void* const* ranks, int n, void* out,
             std::int64_t begin, std::int64_t end, void* native) {
  const CombinedPiece piece{static_cast<std::byte*>(out) + begin * itemsize(dtype), begin};
  combine_pieces(op, dtype, ranks, n, {&piece, 1}, 1, end - begin, end - begin, native);
}

}  // namespace

void register_cuda_device_ops() {
  DeviceOps& ops = device_ops(DeviceKind::cuda);
  ops.copy_box = copy_box;
  ops.copy_boxes = copy_boxes;
  ops.combine = combine;
  ops.combine_pieces = combine_pieces;
  ops.zero = cuda::zero_bytes;
  ops.copy = cuda::copy_bytes;
  ops.copy_streaming = cuda::copy_bytes;
  ops.copy_between_spaces = cuda::copy_between_spaces;
  ops.host_to_device = cuda::host_to_device;
  ops.device_to_host = cuda::device_to_host;
  ops.read_on_host = cuda::read_on_host;
}

}  // namespace shmap
