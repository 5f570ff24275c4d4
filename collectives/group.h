// What the group functions of collectives of one operand and one result share.
#pragma once
#include <algorithm>

#include "collectives/communicator.h"
#include "core/base/counters.h"
#include "core/runtime/kernel.h"

namespace shmap {

inline GroupBlocks group_blocks(const GroupCall& call, const Axes& axes, const Groups& groups) {
  const ShapedArray& in = call.in[0]->type;
  const ShapedArray& out = call.out[0]->type;
  return {call.mesh,
          clique_table(call.mesh, axes.names(), groups, in.axes().mask()),
          call.in[0]->blocks(),
          call.out[0]->blocks(),
          in.nbytes(),
          out.nbytes(),
          call.primitive,
          call.source,
          call.number};
}

// Counts a collective. True where its cliques have one rank each, so that every result is the
// operand, whose blocks it then shares.
inline bool begin_collective(const GroupBlocks& blocks) {
  count(Counter::collectives);
  if (blocks.cliques.ranks != 1) return false;
  std::copy(blocks.in.begin(), blocks.in.end(), blocks.out.begin());
  return true;
}

}  // namespace shmap
