// Fused programs made of other fused programs: of some of the results alone, and of one program
// inside of another.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "core/ir/jaxpr.h"
#include "core/runtime/fused_program.h"
#include "core/transforms/fusion/fuse_rules.h"

namespace shmap {

// The most operations and operands of a fused program.
inline constexpr int kMostFusedOps = 96;
inline constexpr std::size_t kMostFusedOperands = 24;

// Whether a program has no values of rows and columns, and reads no parts of arrays: it may then
// work in any space of as many elements.
bool fits_any_rows(const FusedProgram& program);

// The program of one elementwise equation (FuseRole::map).
std::shared_ptr<const FusedProgram> program_of_one(const Eqn& e, const FuseSpace& space);

// The `fused` equation of those results of another for which wants(result) says so, without what
// only the other results need.
Eqn part_of_fused(const Eqn& fused, const std::function<bool(std::size_t)>& wants);

// `user`, which computes its operand v itself, as `maker` does, in place of reading it. The user is
// `fused`, `fused_columns` or elementwise, the maker `fused` or elementwise, of one result. Nothing
// where they do not work in one space of rows and columns, where the program would be too large,
// and where it would read no array.
std::optional<Eqn> computed_inside(const Eqn& user, const Var* v, const Eqn& maker);

}  // namespace shmap
