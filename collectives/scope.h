// What every collective does before it binds, and in its rules of variance: axes looked up in the
// scope of the current trace, groups checked, operands cast, variance compared.
#pragma once
#include <cstdint>
#include <string>

#include "core/ir/trace.h"
#include "shmap/collectives.h"

namespace shmap {

// Axes that are all in scope. CollectiveError where one is not ("unbound axis name"), ValueError
// where one is named twice; `what` is the collective.
struct AxesInScope {
  AxesInScope(const Axes& axes, const char* what, SourceLine source);
  const detail::AxisEnv* env;
  std::uint32_t mask = 0;
  int ranks = 1;
};

// The ranks of a group: all, or the common length of the groups. ValueError where the groups do not
// hold each rank once, or are of unlike lengths.
int group_size(const Groups& groups, int ranks, const char* what, const Axes& axes,
               SourceLine source);

// x, cast by pbroadcast to vary over all of the axes where the current trace does that.
Array cast_to_varying(const Array& x, const Axes& axes, const AxesInScope& scope, const char* what,
                      SourceLine source);

// "8 ranks over mesh axes ('i', 'j') of sizes 4, 2": for texts.
std::string describe_ranks(const Axes& axes, int ranks);

// The ValueError for an extent that cannot be cut among the ranks. dim: "dim 0", as the caller
// names it; `tiled` as it was given. Says what the other form does where the extent fits that.
[[noreturn]] void throw_not_cut(const char* what, const std::string& dim, const ShapedArray& in,
                                std::int64_t extent, bool tiled, const Axes& axes, int ranks,
                                const Groups& groups);

// ---- rules of variance. `env` is the mesh of the operands.
// The mask of axes; CollectiveError where env has not one of them.
std::uint32_t mask_of(const Axes& axes, const detail::AxisEnv& env, const char* what);
// TypeErrors, where the current trace checks variance.
void require_varying(const ShapedArray& x, const Axes& axes, std::uint32_t mask,
                     const detail::AxisEnv& env, const char* what);
void require_invariant(const ShapedArray& x, const Axes& axes, std::uint32_t mask,
                       const detail::AxisEnv& env, const char* what);
// V -> V and V -> I.
void varying_to_varying(Types in, const Axes& axes, const detail::AxisEnv& env,
                        std::span<ShapedArray> out, const char* what);
void varying_to_invariant(Types in, const Axes& axes, const detail::AxisEnv& env,
                          std::span<ShapedArray> out, const char* what);
void invariant_to_varying(Types in, const Axes& axes, const detail::AxisEnv& env,
                          std::span<ShapedArray> out, const char* what);

}  // namespace shmap
