// A step: one primitive on the blocks of every local device of a mesh. Eager dispatch runs one; a
// plan runs many, and a captured graph is the same run under capture.
#pragma once
#include <cstdint>
#include <span>

#include "core/runtime/op_site.h"

namespace shmap {

struct Step {
  const Primitive& primitive;
  const Params& params;
  const detail::MeshImpl& mesh;
  // Literals, or stored values whose tables have the mesh's local devices. An operand with only one
  // handle was given up by the caller, and a result may overwrite its buffer (may_overwrite). A
  // collective replaces literals by stored values, and each operand by one with its type in
  // `in_types`.
  std::span<Array> in;
  Types in_types;  // of one device's blocks
  // The mesh axes over which results differ. Values that are equal over the other axes are computed
  // once for each memory space. Collectives do this themselves.
  std::uint32_t varying;
  SourceLine source;
};

// Fills the tables of `out`, whose types (of one device's block) are given by out_types. Enqueues,
// or runs at once where the work is small and nothing is pending; never waits for a device. The
// caller does not hold the submit mutex. OutOfMemory names the primitive and the line.
void run_step(const Step& step, Types out_types, std::span<StoredNode* const> out);

// run_step's part for a collective: passes it the blocks of all local devices at once.
void run_group(const Step& step, const OpSite& site, std::span<StoredNode* const> out);

// The operand with the type of its blocks: arguments of a plan still have the type of the whole
// array.
Array as_block(Array x, const ShapedArray& type);

}  // namespace shmap
