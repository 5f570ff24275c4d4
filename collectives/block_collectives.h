// The collectives that are inserted where operations on global arrays become work on blocks: what
// reshards arrays, and what completes values that are partial. Each binds a primitive under the
// current trace, in whose scope the mesh's axes are: it runs at once in an eager trace and is
// written down in a lowering. Axes are indices into the mesh's axes, major first. Errors are those
// of the collective that is bound.
#pragma once
#include <vector>

#include "core/ir/sharding_rule.h"
#include "shmap/array.h"

namespace shmap {

// A block of dim `dim` gathered over these axes, the same on every device after
// (all_gather_invariant).
Array gather_block(const Array& block, const std::vector<int>& axes, int dim, SourceLine source);
// This device's piece of dim `dim` of a block that is the same over these axes (pscatter).
Array scatter_block(const Array& block, const std::vector<int>& axes, int dim, SourceLine source);
// Dim `split` cut into pieces, which are exchanged over these axes and joined along dim `concat`
// (all_to_all).
Array exchange_block(const Array& block, const std::vector<int>& axes, int split, int concat,
                     SourceLine source);
// Partial values combined into the same value on every device (psum, pmax, pmin).
Array combine_block(const Array& block, const std::vector<int>& axes, FactorKind kind,
                    SourceLine source);

}  // namespace shmap
