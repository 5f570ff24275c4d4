// Decides whether a program of several GPUs is one graph, or one graph for each GPU.
#pragma once
#include <cstdint>

namespace shmap {
class MemorySpace;
}

namespace shmap::cuda {

enum class GraphsOf : std::uint8_t { unknown, all_gpus, each_gpu };

// The value of SHMAP_GRAPHS; unknown: whatever the driver supports. Throws ValueError.
GraphsOf demanded_graphs();

// Makes and launches a graph with work of both GPUs; false if the driver refuses it. `space` is on
// `gpu`, `other_space` on `other_gpu`. Blocks until the GPUs are done. Throws OutOfMemory, and
// DeviceError if a GPU is lost.
bool take_graphs_of_several_gpus(MemorySpace& space, int gpu, MemorySpace& other_space,
                                 int other_gpu);

}  // namespace shmap::cuda
