// Whether a program of several GPUs is one graph, or one for each GPU.
#pragma once
#include <cstdint>

namespace shmap {
class MemorySpace;
}

namespace shmap::cuda {

enum class GraphsOf : std::uint8_t { unknown, all_gpus, each_gpu };

// What SHMAP_GRAPHS asks for; unknown: what the driver takes. Throws ValueError.
GraphsOf demanded_graphs();

// Makes a graph with work of both GPUs, and launches it: false where the driver refuses. Spaces: of
// each GPU. Throws OutOfMemory, and DeviceError where a GPU is lost. Waits for the GPUs.
bool take_graphs_of_several_gpus(MemorySpace& space, int gpu, MemorySpace& other_space,
                                 int other_gpu);

}  // namespace shmap::cuda
