// Resharding: moves an array from one sharding to another. Each device's new block is assembled
// from the old blocks that contain its elements.
#pragma once
#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "shmap/array.h"

namespace shmap {

// A concrete array of the same value with the sharding `target`. Where the new block is a
// contiguous part of an old one in the same memory space, the table shares it and nothing moves;
// otherwise the block is copied, once per memory space, and counted in counters().copies and
// .copied_bytes. Returns `x` itself where it has that sharding. Does not wait. `what` names the
// array in errors ("args[0]"): ValueError where a dim is not divisible or the spec is too long.
Array reshard(const Array& x, const Sharding* target, const std::string& what,
              SourceLine source = {});

// reshard for an array whose blocks are in several processes and whose new blocks cannot all be
// made from local blocks. It needs collectives, so their registration sets the function.
using ReshardAcross = Array (*)(const Array& x, const Sharding* target, const std::string& what,
                                SourceLine source);
void set_reshard_across(ReshardAcross reshard);

// A literal as a stored array on a mesh (one block per memory space).
Array materialize(const LiteralNode& literal, const detail::MeshImpl* mesh);
// The same blocks with another type, sharding and trace: a concrete array's table as a value of a
// body, or the other way round.
Array relabel(const StoredNode& node, const ShapedArray& type, const Sharding* sharding,
              std::uint64_t trace, bool committed);
// relabel for a value that the caller gives up: reuses the node of x where no other handle exists.
Array relabel(Array&& x, const ShapedArray& type, const Sharding* sharding, std::uint64_t trace,
              bool committed);

}  // namespace shmap
