// The order of devices in a mesh for which the caller named none.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace shmap {

// nodes: for each device the number of the node that it is on. The devices' positions such that
// those of a node follow each other, the nodes in the order of their first devices, and the devices
// of a node in their own order. A mesh is filled row-major, so that its last axes lie within nodes
// where they fit. Launchers may deal processes out to the nodes in turns.
std::vector<std::size_t> node_order(std::span<const int> nodes);

}  // namespace shmap
