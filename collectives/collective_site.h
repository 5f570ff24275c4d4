// CollectiveSite: which collective a task belongs to, for the errors that come out of it.
#pragma once
#include "collectives/clique_table.h"
#include "core/runtime/op_site.h"

namespace shmap {

struct CollectiveSite {
  OpSite op;
  const CliqueTable* cliques;  // which live for ever
};

// A part of the task is about to run: the fault point "collective", of the first part's device.
void reach_collective(const CollectiveSite& site, int part);
// In a handler: throws the error again, as a CollectiveError that names the collective, its axes,
// its number, the device and the caller's line. Errors of memory keep their kind.
[[noreturn]] void rethrow_from(const CollectiveSite& site);

}  // namespace shmap
