// Resharding by collectives: from one sharding to another over the same mesh, for eager arrays and
// for lowered programs.
#pragma once
#include <string>
#include <vector>

#include "core/array/sharding.h"
#include "core/ir/sharding_rule.h"
#include "shmap/array.h"

namespace shmap {

// The block under `to` of an array of that rank, from its block under `from`, a sharding over the
// same mesh. Both are values of the current trace, which has the mesh's axes in scope. Axes that
// move from one dim to another take an all_to_all; other axes that leave a dim take an
// all_gather_invariant; other axes that are added to a dim take a pscatter, which sends nothing.
// `to` must divide the array's dims.
Array reshard_block(Array block, const Sharding* from, const Sharding* to, std::size_t rank,
                    SourceLine source);

// The type of each device's block of an array, which varies over the axes that the sharding
// mentions and over those of the array's type (a value of a body with automatic axes). ValueError
// naming `what` where the array does not fit the sharding.
ShapedArray block_type(const ShapedArray& array, const Sharding* sharding, const std::string& what);

// A concrete array under `target`, with the contract of reshard_by_copies (core/runtime/reshard.h):
// by copies, or by reshard_array where the array has blocks in several processes.
Array reshard(const Array& x, const Sharding* target, const std::string& what,
              SourceLine source = {});

// A concrete array under `target`, with the same contract: by collectives where its sharding is
// over the same mesh, otherwise by `reshard`. A value of a body with automatic axes, too.
Array reshard_array(const Array& x, const Sharding* target, const std::string& what,
                    SourceLine source = {});

}  // namespace shmap
