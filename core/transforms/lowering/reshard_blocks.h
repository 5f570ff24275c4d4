// Resharding by collectives: how an array of one mesh gets another sharding of that mesh, the same
// eagerly and in lowered programs.
#pragma once
#include <string>
#include <vector>

#include "core/array/sharding.h"
#include "core/ir/sharding_rule.h"
#include "shmap/array.h"

namespace shmap {

// A block of an array of that rank, as a value of the current trace, in whose scope the mesh's axes
// are: what it is under `to`, where it was under `from`, a sharding of the same mesh. Axes that
// leave one dim for another take an all_to_all; others that leave a dim are gathered
// (all_gather_invariant), and those that come to one cut it (pscatter, which moves nothing between
// devices). `to` must divide the array's dims.
Array reshard_block(Array block, const Sharding* from, const Sharding* to, std::size_t rank,
                    SourceLine source);

// A concrete array under `target`, with the contract of reshard_by_copies (core/runtime/reshard.h):
// by copies, or by the collectives of reshard_array where its blocks are in several processes.
Array reshard(const Array& x, const Sharding* target, const std::string& what,
              SourceLine source = {});

// A concrete array under `target`, with the same contract: by these collectives where its sharding
// is one of the same mesh, else by `reshard`.
Array reshard_array(const Array& x, const Sharding* target, const std::string& what,
                    SourceLine source = {});

}  // namespace shmap
