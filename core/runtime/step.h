// A step: one primitive on the blocks of every local device of a mesh. Eager dispatch runs one; a
// plan runs many, and a captured graph is the same run under capture.
#pragma once
#include <cstdint>
#include <span>

#include "core/runtime/kernel.h"

namespace shmap {

struct Step {
  const Primitive& primitive;
  const Params& params;
  const detail::MeshImpl& mesh;
  // Literals, or stored values whose tables have the mesh's local devices. One whose handle is the
  // only one was given up by the caller, and its buffer may be overwritten. A collective leaves
  // literals as stored values, and each operand under its type in `in_types`.
  std::span<Array> in;
  Types in_types;  // of one device's blocks
  // The mesh axes over which results differ. What is the same over the others is computed once a
  // memory space. Collectives see to that by themselves.
  std::uint32_t varying;
  SourceLine source;
};

// Fills the tables of `out`, whose types (of one device's block) are given by out_types. Enqueues,
// or runs at once where the work is small and nothing is pending; never waits for a device. The
// caller does not hold the submit mutex. OutOfMemory names the primitive and the line.
void run_step(const Step& step, Types out_types, std::span<StoredNode* const> out);

// A stored operand under the type of its blocks: arguments of a plan still have that of the whole
// array.
Array as_block(Array x, const ShapedArray& type);

}  // namespace shmap
