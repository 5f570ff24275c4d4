// A model of the time that each form of an overlapped product takes, for the choice of the form.
//
// On CPUs the devices of a process share its cores, and a copy is work of these cores: no
// communication is hidden, and the form that moves the least data through memory is best. Between
// nodes data travels beside products, and a step of a ring takes as long as the longer of the two.
// On GPUs copies run beside products: collectives/link_model.h has the time of copies, and products
// fill the multiprocessors in waves of tiles. The constants of GPUs come from published data
// sheets; this project has not measured the forms on several GPUs, nor between nodes.
#pragma once
#include <optional>
#include <span>

#include "core/device/device_kinds.h"
#include "overlap/overlap.h"

namespace shmap {

// The microseconds of each form on one device; `form` of the result stays automatic. env: as of
// overlap_machine.
OverlapChoice model_overlap(const OverlapSpec& spec, const detail::AxisEnv* env,
                            const ShapedArray& a, const ShapedArray& b);

// The form that SHMAP_OVERLAP asks for.
Overlap forced_overlap();

// ---- the parts of the model, for its tests
enum class OverlapLink : std::uint8_t {
  shared,   // one memory space: a permutation relabels blocks, and nothing moves
  cores,    // copies by the cores that also multiply
  network,  // CPU devices: between nodes, beside products
  peers,    // copies between GPUs, beside products
  staged,   // copies between GPUs through the host's memory, beside products
};
// How the cliques of a collective lie on nodes: the most that a node has.
struct OverlapNodes {
  int ranks = 1;      // of one clique
  int processes = 1;  // that drive these
  int cliques = 1;    // that have ranks on other nodes too
};
// The bytes a microsecond that a node receives while it sends as many: TCP over Ethernet of 10
// Gbit/s, the slowest link that is usual between hosts of a cluster. Of the 1538 bytes that a frame
// of 1500 takes on the wire, 1448 are data. No network was measured.
constexpr double kNetworkBytes = 1250.0 * 1448 / 1538;
struct OverlapMachine {
  DeviceKind kind = kHostKind;
  OverlapLink link = OverlapLink::shared;
  int sharing = 1;                       // the number of devices that share a GPU
  OverlapNodes nodes = {};               // of a network
  double network_bytes = kNetworkBytes;  // a microsecond
};
// The machine of a collective over `axes`, the same in all processes. A mesh is taken to have its
// devices in the order of make_mesh, since a program may be traced before it has any. env: of the
// mesh; null where it is not known, which counts as one node.
OverlapMachine overlap_machine(const detail::AxisEnv* env, const Axes& axes);
// nodes, processes: those of each device of a mesh, by position. Nothing where each clique over
// `axes` lies on one node, where the mesh has more devices than these, or lacks one of the axes.
std::optional<OverlapNodes> nodes_of_cliques(const detail::AxisEnv& env, const Axes& axes,
                                             std::span<const int> nodes,
                                             std::span<const int> processes);
OverlapChoice model_overlap(const OverlapMachine& machine, const OverlapSpec& spec,
                            const ShapedArray& a, const ShapedArray& b);

}  // namespace shmap
