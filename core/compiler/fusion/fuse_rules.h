// The role that an equation can have in a fused program, judged by the equation alone.
#pragma once
#include <cstdint>
#include <vector>

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

// How an equation reads an operand: as which kind and, if it has fewer rows than the space, which
// of them.
struct FuseRead {
  FusedKind kind;
  FusedProgram::Repeat repeat = {};
  bool repeats() const { return repeat.count > 0; }
  friend bool operator==(const FuseRead&, const FuseRead&) = default;
};
// How a broadcast whose result is of kind `kind` reads its operand in the space; without a space,
// full values have no rows and columns. False where the operand cannot be read so: where rows would
// be needed and there are none, or where it has none of the forms of FuseRead.
bool broadcast_read(const Eqn& eqn, FusedKind kind, const FuseSpace* space, FuseRead* out);
// The numbers of columns, the largest first, of the spaces in which a broadcast with a full result
// can read its operand by its inner dims; none where it reads all elements or one in any space.
std::vector<std::int64_t> broadcast_cols(const Eqn& eqn);
// The kind as which an equation of that role, other than a broadcast, uses operand a, where its
// result is of kind `kind`.
FusedKind fuse_operand_kind(const Eqn& eqn, FuseRole role, FusedKind kind, const Atom& a);

}  // namespace shmap
