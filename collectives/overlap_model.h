// What the forms of an overlapped product take, as a model says it: for the choice of one.
//
// On CPUs the devices of a process share its cores, and a copy is work of these: nothing is hidden
// behind anything, and a form is better where it moves less through memory. On GPUs copies run
// beside products; collectives/link_model.h says what they take, and products fill the
// multiprocessors in waves of tiles. The constants of GPUs are those of published data sheets; this
// project has not measured the forms on several GPUs.
#pragma once
#include "collectives/overlap.h"

namespace shmap {

// The microseconds of each form on one device; `form` is left automatic.
OverlapChoice model_overlap(const OverlapSpec& spec, const ShapedArray& a, const ShapedArray& b);

// What SHMAP_OVERLAP asks for.
Overlap forced_overlap();

// ---- the parts of the model, for its tests
enum class OverlapLink : std::uint8_t {
  shared,  // one memory space: what is permuted is relabelled, and nothing moves
  cores,   // copies by the cores that multiply
  peers,   // copies between GPUs beside products
  staged,  // likewise, through the host's memory
};
struct OverlapMachine {
  DeviceKind kind = DeviceKind::cpu;
  OverlapLink link = OverlapLink::shared;
  int sharing = 1;  // devices that share a GPU
};
// That of the process.
OverlapMachine overlap_machine();
OverlapChoice model_overlap(const OverlapMachine& machine, const OverlapSpec& spec,
                            const ShapedArray& a, const ShapedArray& b);

}  // namespace shmap
