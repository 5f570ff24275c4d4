// The role that an equation can have in a fused program, judged by the equation alone.
#pragma once
#include <cstdint>

#include "core/ir/jaxpr.h"
#include "core/runtime/fused_program.h"

namespace shmap {

enum class FuseRole : std::uint8_t { other, map, reduce, broadcast, reshape, draw };
FuseRole fuse_role(const Eqn& eqn);

// The space of a fused program.
struct FuseSpace {
  std::int64_t rows = 1, cols = 1;
  std::int64_t elements() const { return rows * cols; }
  friend bool operator==(const FuseSpace&, const FuseSpace&) = default;
};

// The space of a reduction, whose rows are the elements that are reduced together. False if the
// reduction is not over exactly the last dims, or rows are too long for one thread.
bool reduced_space(const Eqn& eqn, FuseSpace* out);
// The space of a draw: a row for each key.
FuseSpace drawn_space(const Eqn& eqn);
// The kind of a broadcast's operand where its result is full. For kinds row and col, `space`
// receives the space. False where the operand is of no kind.
bool broadcast_kind(const Eqn& eqn, FusedKind* kind, FuseSpace* space);
// The kind as which an equation of that role uses operand a, where its result is of kind `kind`.
FusedKind fuse_operand_kind(const Eqn& eqn, FuseRole role, FusedKind kind, const Atom& a);

}  // namespace shmap
