// Resharding: moves an array from one sharding to another. Each device's new block is assembled
// from the old blocks that contain its elements.
#pragma once
#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "shmap/array.h"

namespace shmap {

// A concrete array of the same value with the sharding `target`, all of whose new blocks can be
// made of blocks of this process (not has_blocks_elsewhere). Where the new block is a contiguous
// part of an old one in the same memory space, the table shares it and nothing moves; otherwise the
// block is copied, once per memory space, and counted in counters().copies and .copied_bytes.
// Returns `x` itself where it has that sharding. Does not wait. `what` names the array in errors
// ("args[0]"): ValueError where a dim is not divisible or the spec is too long.
Array reshard_by_copies(const Array& x, const Sharding* target, const std::string& what,
                        SourceLine source = {});

// Whether `x` is a concrete array whose blocks are in several processes, so that resharding it to
// `target` takes collectives (core/compiler/lowering/reshard_blocks.h).
bool has_blocks_elsewhere(const Array& x, const Sharding* target);

// A literal as a stored array on a mesh (one block per memory space); any other value unchanged.
Array as_stored(Array x, const detail::MeshImpl* mesh);
// The same blocks with another type, sharding and trace: a concrete array's table as a value of a
// body, or the other way round.
Array relabel(const StoredNode& node, const ShapedArray& type, const Sharding* sharding,
              std::uint64_t trace, bool committed);
// relabel for a value that the caller gives up: reuses the node of x where no other handle exists.
Array relabel(Array&& x, const ShapedArray& type, const Sharding* sharding, std::uint64_t trace,
              bool committed);

}  // namespace shmap
