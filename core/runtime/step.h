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
  std::span<const Array>
      in;          // literals, or stored values whose tables have the mesh's local devices
  Types in_types;  // of one device's blocks
  // The mesh axes over which results differ. What is the same over the others is computed once a
  // memory space.
  std::uint32_t varying;
  // Bit i: operand i was given up by its caller (its handle is the only one), so that its buffer
  // may be overwritten.
  std::uint32_t donated;
  SourceLine source;
};

// Fills the tables of `out`, whose types (of one device's block) are given by out_types. Enqueues,
// or runs at once where the work is small and nothing is pending; never waits for a device. The
// caller does not hold the submit mutex.
void run_step(const Step& step, Types out_types, std::span<StoredNode* const> out);

}  // namespace shmap
