// A model of the time that each form of an overlapped product takes, for the choice of the form.
//
// On CPUs the devices of a process share its cores, and a copy is work of these cores: no
// communication is hidden, and the form that moves the least data through memory is best. On GPUs
// copies run beside products: collectives/link_model.h has the time of copies, and products fill
// the multiprocessors in waves of tiles. The constants of GPUs come from published data sheets;
// this project has not measured the forms on several GPUs.
#pragma once
#include "core/device/device_kinds.h"
#include "overlap/overlap.h"

namespace shmap {

// The microseconds of each form on one device; `form` of the result stays automatic.
OverlapChoice model_overlap(const OverlapSpec& spec, const ShapedArray& a, const ShapedArray& b);

// The form that SHMAP_OVERLAP asks for.
Overlap forced_overlap();

// ---- the parts of the model, for its tests
enum class OverlapLink : std::uint8_t {
  shared,  // one memory space: a permutation relabels blocks, and nothing moves
  cores,   // copies by the cores that also multiply
  peers,   // copies between GPUs, beside products
  staged,  // copies between GPUs through the host's memory, beside products
};
struct OverlapMachine {
  DeviceKind kind = kHostKind;
  OverlapLink link = OverlapLink::shared;
  int sharing = 1;  // the number of devices that share a GPU
};
// The machine of this process.
OverlapMachine overlap_machine();
OverlapChoice model_overlap(const OverlapMachine& machine, const OverlapSpec& spec,
                            const ShapedArray& a, const ShapedArray& b);

}  // namespace shmap
