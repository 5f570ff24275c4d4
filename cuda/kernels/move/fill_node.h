// A kernel that fills memory as cudaMemset does, as a node of a graph.
#pragma once
#include <cuda_runtime_api.h>

#include <span>

namespace shmap::cuda {

// Fills of more bytes are left to the driver. One block writes them.
inline constexpr std::size_t kMostFillBytes = 4096;

// Adds a kernel node to `graph`, after the nodes `after`, which fills as the parameters of a memset
// node say: one row, of kMostFillBytes at most. The current GPU is the one that owns the memory.
cudaError_t add_fill_node(cudaGraphNode_t* node, cudaGraph_t graph,
                          std::span<const cudaGraphNode_t> after, const cudaMemsetParams& fill);

}  // namespace shmap::cuda
