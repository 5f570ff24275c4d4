// Whether a launcher (mpirun, srun) started this process together with others.
#pragma once

namespace shmap {

// Throws DeviceError where the launcher's variables say that this is one of several processes, and
// SHMAP_ALONE does not say that it works for itself: the library does not join processes yet, and
// each would take itself for the only one.
void refuse_several_processes();

}  // namespace shmap
