// Moving an array from one sharding to another: every device's new block is put together from
// whatever old blocks hold it.
#pragma once
#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "shmap/array.h"

namespace shmap {

// A concrete array of the same value under `target`. Where a device's memory space holds the new
// block as a contiguous part of an old one, the table shares it and nothing moves; otherwise the
// block is copied, once a memory space, and counted in counters().copies and .copied_bytes. Returns
// `x` itself where it is in place. Never waits. `what` names the array in errors ("args[0]"):
// ValueError where a dim is not divisible or the spec is too long.
Array reshard(const Array& x, const Sharding* target, const std::string& what,
              SourceLine source = {});

// Of an array whose blocks are in several processes, and whose new blocks are not all made from
// blocks that are here: done by collectives, with what it is given by whoever knows these.
using ReshardAcross = Array (*)(const Array& x, const Sharding* target, const std::string& what,
                                SourceLine source);
void set_reshard_across(ReshardAcross reshard);

// A literal as a stored array on a mesh (one block a memory space).
Array materialize(const LiteralNode& literal, const detail::MeshImpl* mesh);
// The same blocks under another label: a concrete array's table as seen inside a body, or back.
Array relabel(const StoredNode& node, const ShapedArray& type, const Sharding* sharding,
              std::uint64_t trace, bool committed);
// The same of a stored value that the caller gives up: x itself where nobody else holds it.
Array relabel(Array&& x, const ShapedArray& type, const Sharding* sharding, std::uint64_t trace,
              bool committed);

}  // namespace shmap
