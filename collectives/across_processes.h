// The communicator among CPU devices of several processes.
//
// A collective is one exchange between processes, or two, with local work before and after: what a
// process sends is put together from its devices' blocks, and what comes is handed out to them,
// once a memory space. Sums of floats are the tree that they are in one process, over the same
// ranks in the same order: each process adds what is a part of the tree of its own, and the rest is
// added where it is wanted. So any layout of processes gives the same bits.
#pragma once
#include "collectives/communicator.h"

namespace shmap {

// Of calls whose clique table has a CrossTable. It lives for ever.
Communicator& across_processes();

}  // namespace shmap
