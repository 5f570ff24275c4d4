// Makes fused programs from other fused programs: one with some of the results alone, and one that
// contains another.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "core/compiler/fusion/fuse_rules.h"
#include "core/ir/jaxpr.h"
#include "core/runtime/fused_program.h"

namespace shmap {

// The most operations and operands of a fused program.
inline constexpr int kMostFusedOps = 96;
inline constexpr std::size_t kMostFusedOperands = 24;

// True if a program has no values of rows and columns and reads no windows of arrays and no
// operands that repeat. Such a program works in any space of as many elements.
bool fits_any_rows(const FusedProgram& program);

// The program of one elementwise equation (FuseRole::map).
std::shared_ptr<const FusedProgram> program_of_one(const Eqn& e, const FuseSpace& space);

// Makes a `fused` equation with only the results of `fused` for which wants(result) is true, and
// only the operations that these results need.
Eqn part_of_fused(const Eqn& fused, const std::function<bool(std::size_t)>& wants);

// Makes an equation that does what `user` does, but computes its operand v itself, as `maker` does.
// `user` is `fused`, `fused_columns` or elementwise; `maker` is `fused` or elementwise and has one
// result. Nothing if their spaces of rows and columns differ, or if the program would be too large
// or read no array.
std::optional<Eqn> computed_inside(const Eqn& user, const Var* v, const Eqn& maker);

}  // namespace shmap
