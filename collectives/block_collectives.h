// The collectives that are inserted where operations on global arrays become work on blocks: they
// reshard arrays, and complete partial values. Each function binds a primitive under the current
// trace, whose scope has the mesh's axes: an eager trace runs it at once, a lowering writes it
// down. Axes are indices into the mesh's axes, major first. Errors are those of the collective that
// is bound.
#pragma once
#include <vector>

#include "core/ir/sharding_rule.h"
#include "shmap/array.h"

namespace shmap {

// Gathers dim `dim` of a block over these axes; the result is the same on every device
// (all_gather_invariant).
Array gather_block(const Array& block, const std::vector<int>& axes, int dim, SourceLine source);
// Takes this device's piece along `dim` of a block that is the same over these axes (pscatter).
Array scatter_block(const Array& block, const std::vector<int>& axes, int dim, SourceLine source);
// Cuts dim `split` into pieces, exchanges them over these axes, and joins the received pieces along
// dim `concat` (all_to_all).
Array exchange_block(const Array& block, const std::vector<int>& axes, int split, int concat,
                     SourceLine source);
// Combines partial values into the same value on every device (psum, pmax, pmin).
Array combine_block(const Array& block, const std::vector<int>& axes, FactorKind kind,
                    SourceLine source);

}  // namespace shmap
