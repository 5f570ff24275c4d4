// What an equation can be in a fused program, judged by itself.
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

// The space that a reduction works on. False where it reduces others than the last dims, or rows
// too long for one thread to hold.
bool reduced_space(const Eqn& eqn, FuseSpace* out);
// Of a draw: a row for each key.
FuseSpace drawn_space(const Eqn& eqn);
// What a broadcast's operand is to its full result, whose space it decides where it is of rows or
// of columns. False where it is of neither.
bool broadcast_kind(const Eqn& eqn, FusedKind* kind, FuseSpace* space);
// As what an equation of that role uses operand a, where its result is of kind `kind`.
FusedKind fuse_operand_kind(const Eqn& eqn, FuseRole role, FusedKind kind, const Atom& a);

}  // namespace shmap
