// The steps that all collectives take before they bind, and in their variance rules: look axes up
// in the scope of the current trace, check groups, cast operands, compare variance.
#pragma once
#include <cstdint>
#include <string>

#include "core/ir/trace.h"
#include "shmap/collectives.h"

namespace shmap {

// Axes that are all in scope. CollectiveError where an axis is not ("unbound axis name"),
// ValueError where one is named twice; `what` names the collective.
struct AxesInScope {
  AxesInScope(const Axes& axes, const char* what, SourceLine source);
  const detail::AxisEnv* env;
  std::uint32_t mask = 0;
  int ranks = 1;
};

// The number of ranks of a group: all ranks, or the common length of the groups. ValueError where
// the groups do not contain each rank once, or have different lengths.
int group_size(const Groups& groups, int ranks, const char* what, const Axes& axes,
               SourceLine source);

// x, cast by pbroadcast to vary over all of the axes, where the current trace casts.
Array cast_to_varying(const Array& x, const Axes& axes, const AxesInScope& scope, const char* what,
                      SourceLine source);

// "8 ranks over mesh axes ('i', 'j') of sizes 4, 2", for messages.
std::string describe_ranks(const Axes& axes, int ranks);

// The ValueError for an extent that cannot be cut among the ranks. dim: the caller's name of the
// dim, "dim 0"; `tiled`: the caller's option. The text says what the other setting of `tiled` would
// do, where the extent fits it.
[[noreturn]] void throw_not_cut(const char* what, const std::string& dim, const ShapedArray& in,
                                std::int64_t extent, bool tiled, const Axes& axes, int ranks,
                                const Groups& groups);

// ---- variance rules. `env`: the axes of the operands' mesh.
// The mask of axes; CollectiveError where env lacks one of them.
std::uint32_t mask_of(const Axes& axes, const detail::AxisEnv& env, const char* what);
// The parameters of an equation may be those of a mesh whose axes have other sizes: the program was
// traced for another mesh, or written by hand. ValueErrors where the groups, or ranks where there
// are none, are not all ranks over the axes, and where one of the ranks that are `named` is beyond
// them. Nothing is checked where env does not know the sizes.
void require_ranks(const Axes& axes, const Groups& groups, int ranks, const detail::AxisEnv& env,
                   const char* what);
void require_rank(const Axes& axes, int named, const detail::AxisEnv& env, const char* what);
// Throw TypeErrors, where the current trace checks variance.
void require_varying(const ShapedArray& x, const Axes& axes, std::uint32_t mask,
                     const detail::AxisEnv& env, const char* what);
void require_invariant(const ShapedArray& x, const Axes& axes, std::uint32_t mask,
                       const detail::AxisEnv& env, const char* what);
// The rules V -> V, V -> I and I -> V of shmap/collectives.h.
void varying_to_varying(Types in, const Axes& axes, const detail::AxisEnv& env,
                        std::span<ShapedArray> out, const char* what);
void varying_to_invariant(Types in, const Axes& axes, const detail::AxisEnv& env,
                          std::span<ShapedArray> out, const char* what);
// V -> I, or V -> V where there are groups, since the results of groups differ.
void varying_to_invariant(Types in, const Axes& axes, const Groups& groups,
                          const detail::AxisEnv& env, std::span<ShapedArray> out, const char* what);
void invariant_to_varying(Types in, const Axes& axes, const detail::AxisEnv& env,
                          std::span<ShapedArray> out, const char* what);

}  // namespace shmap
