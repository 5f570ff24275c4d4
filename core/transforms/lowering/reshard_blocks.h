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

// A concrete array under `target`: by these collectives where its sharding is one of the same mesh,
// by copies (core/runtime/reshard.h, whose contract it keeps) where it comes from elsewhere.
Array reshard_array(const Array& x, const Sharding* target, const std::string& what,
                    SourceLine source = {});

// What it is made of, and what lowering inserts; set by the collectives' registration.
struct LoweringCollectives {
  // A block of dim `dim` gathered over these axes (major first), the same on every device after.
  Array (*all_gather)(const Array& block, const std::vector<int>& axes, int dim, SourceLine source);
  // This device's piece of dim `dim` of a block that is the same over these axes.
  Array (*scatter)(const Array& block, const std::vector<int>& axes, int dim, SourceLine source);
  // Dim `split` cut into pieces, which are exchanged over these axes and joined along dim `concat`.
  Array (*exchange)(const Array& block, const std::vector<int>& axes, int split, int concat,
                    SourceLine source);
  // Partial values combined.
  Array (*combine)(const Array& block, const std::vector<int>& axes, FactorKind kind,
                   SourceLine source);
};
void set_lowering_collectives(const LoweringCollectives& collectives);
const LoweringCollectives& lowering_collectives();

}  // namespace shmap
