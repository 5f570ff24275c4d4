// The link between memory spaces: directly, or staged through pinned host memory.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace shmap::cuda {

// As SHMAP_LINK says, read once: false is "direct", the driver's own copies. Throws ValueError.
bool link_is_staged();

// In a task: copies `bytes` from a block of another memory space, in order in the stream `native`
// (a cudaStream_t). Staged, it goes through two buffers of the stream's, piece by piece: one is
// filled by a second stream, of the source's GPU, while the other is emptied, so that both copy
// engines work. What is captured has buffers of its graph. Throws DeviceError.
void copy_between_spaces(void* dst, const void* src, std::int64_t bytes, void* native);

// The stream goes: so do its buffers. What it copied is done.
void drop_link(cudaStream_t stream) noexcept;

}  // namespace shmap::cuda
