// The link between memory spaces: direct copies, or copies staged through pinned host memory.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace shmap::cuda {

// Reads SHMAP_LINK once; false for "direct", the driver's own copies. Throws ValueError.
bool link_is_staged();

// Called in a task: copies `bytes` from a block of another memory space, in order in the stream
// `native` (a cudaStream_t). If staged, the copy goes through two buffers of the stream, piece by
// piece: a second stream, of the source's GPU, fills one while the other is emptied, so that both
// copy engines work. A captured copy uses buffers of its graph. Throws DeviceError.
void copy_between_spaces(void* dst, const void* src, std::int64_t bytes, void* native);

// Called before the stream is destroyed: releases its buffers. Its copies must be done.
void drop_link(cudaStream_t stream) noexcept;

}  // namespace shmap::cuda
