// Makes kernels of the small fills of a captured graph.
#pragma once
#include <cuda_runtime_api.h>

namespace shmap::cuda {

// cuBLASLt clears a few bytes before most of its kernels. In a graph the driver lets a copy engine
// do so, where the fill waits behind all copies that are under way (1.9 ms behind 207 copies to
// pinned memory were seen on an H200), and the product waits with it. A kernel waits for none.
//
// Each memset node of one row of kMostFillBytes or less gets a kernel node in its place, with the
// same dependencies. A node that cannot be replaced stays as it is: the graph is right either way.
// Takes time linear in the graph's edges, if there is a memset node. Throws std::bad_alloc.
void replace_small_fills(cudaGraph_t graph);

}  // namespace shmap::cuda
