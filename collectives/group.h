// Helpers for the group functions of collectives with one operand and one result.
#pragma once
#include "collectives/communicator.h"
#include "core/base/counters.h"
#include "core/ir/pbroadcast.h"
#include "core/runtime/kernel.h"

namespace shmap {

inline GroupBlocks group_blocks(const GroupCall& call, const Axes& axes, const Groups& groups) {
  const ShapedArray& in = call.in[0]->type;
  const ShapedArray& out = call.out[0]->type;
  return {call.mesh,
          clique_table(call.mesh, axes.names(), groups, in.axes().mask_in(*call.mesh.env())),
          call.in[0]->blocks(),
          call.out[0]->blocks(),
          in.nbytes(),
          out.nbytes(),
          in.dtype(),
          call.primitive,
          call.source,
          call.number};
}

// Counts a collective. Where cliques have one rank each, counts nothing and returns true: every
// result is then the operand, and shares its blocks.
inline bool begin_collective(const GroupBlocks& blocks) {
  if (blocks.cliques.ranks != 1) {
    count(Counter::collectives);
    return false;
  }
  share_blocks(blocks.in, blocks.out);
  return true;
}

// The group function of psum, pmax and pmin.
inline void run_all_reduce(GroupCall& call, Reduction op) {
  const auto& p = params_as<AxesParams>(call.params);
  const GroupBlocks blocks = group_blocks(call, p.axes, p.groups);
  if (begin_collective(blocks)) return;
  communicator(blocks, CollectiveKind::all_reduce).all_reduce(blocks, op, call.in[0]->type.dtype());
}

}  // namespace shmap
