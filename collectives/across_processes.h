// The communicator among CPU devices of several processes.
//
// A collective is one exchange between processes, or two, with local work before and after: a
// process assembles what it sends from the blocks of its devices, and distributes what it receives
// to them, once per memory space. Sums of floats use the same balanced tree as in one process, over
// the same ranks in the same order: each process adds those values that form a subtree on its own,
// and the process that needs the result adds the rest. The bits are therefore the same for every
// layout of processes.
#pragma once
#include "collectives/communicator.h"

namespace shmap {

// For calls whose clique table has a CrossTable. Sums and extrema are in cross_sums.cpp, copies in
// cross_copies.cpp.
class AcrossProcesses final : public Communicator {
 public:
  SHMAP_COLLECTIVE_VERBS(SHMAP_VERB_OVERRIDE)
};

}  // namespace shmap
