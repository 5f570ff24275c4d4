// The order of the devices of a mesh for which the caller gave no list of devices.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace shmap {

// nodes: the node of each device. Returns the devices' positions, sorted by node: nodes in the
// order of their first devices, and a node's devices in their given order. A mesh is filled
// row-major, so that its last axes are within nodes if they fit. (A launcher may assign processes
// to nodes in turns.)
std::vector<std::size_t> node_order(std::span<const int> nodes);

}  // namespace shmap
