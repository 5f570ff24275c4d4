// CollectiveSite: the collective to which a task belongs, for the errors of the task.
#pragma once
#include "collectives/clique_table.h"
#include "core/runtime/op_site.h"

namespace shmap {

struct CollectiveSite {
  OpSite op;
  const CliqueTable* cliques;  // tables are never freed
};

// Called before a part of the task runs. Has the fault point "collective", for the device of the
// first part.
void reach_collective(const CollectiveSite& site, int part);
// To be called in a handler: rethrows the exception as a CollectiveError that names the collective,
// its axes, its number, the device and the caller's line. OutOfMemory keeps its class.
[[noreturn]] void rethrow_from(const CollectiveSite& site);

}  // namespace shmap
