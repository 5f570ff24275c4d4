// The rules of a primitive whose parameters contain programs: what passes and transforms do with
// these programs, and with the operands and results that the programs do not need.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/intrusive.h"
#include "core/ir/params.h"

namespace shmap {

// A copy of the parameters with other programs of the same types, which are given in the order in
// which Params::visit visits the old ones.
using ReplaceProgramsFn =
    std::shared_ptr<const Params> (*)(const Params&, std::span<const Ref<const Jaxpr>> programs);
// Removes unused operands and results of an equation: core/compiler/passes/dead_code.h.
struct PruneCall;
using PruneFn = void (*)(PruneCall&);
// Which results of an equation depend on the operands in `of`, which has an entry for each operand.
using DependFn = std::vector<bool> (*)(const Params&, const std::vector<bool>& of);
// How often a call runs the programs in the parameters, if that is known; 1 for a while_loop.
using TripsFn = std::int64_t (*)(const Params&);
// Whether the equations of a called program must not be merged with equal equations outside of it,
// as where checkpoint computes values a second time. If so, the operands go through
// optimization_barrier when the program replaces the equation.
using StaysApartFn = bool (*)(const Params&);
// Stages an equation with programs for operands that vary over more mesh axes than the programs
// were traced for: core/tracing/stage_in_body.h.
struct WidenCall;
using WidenFn = void (*)(WidenCall&);

// Which loop or branch an operation is: core/transforms/control_flow has the parameters of each.
enum class ControlFlow : std::uint8_t { none, scan, while_loop, cond };

// The rules of a primitive whose parameters contain programs (jit, shard_map, control flow).
struct ProgramRules {
  ReplaceProgramsFn replace = nullptr;  // null: passes leave the programs as they are
  PruneFn prune = nullptr;              // null: all operands and results stay
  DependFn depends = nullptr;           // null: found with `prune`, result by result
  TripsFn trips = nullptr;              // null: once
  ControlFlow control_flow = ControlFlow::none;
  // A call runs only one of the programs: the branches of cond.
  constexpr bool one_runs() const { return control_flow == ControlFlow::cond; }
  // There is one program, whose results are those of the equation, and which passes put in the
  // place of the equation.
  bool inlined = false;
  StaysApartFn stays_apart = nullptr;  // of `inlined`; null: never
  WidenFn widen = nullptr;             // null: the programs are traced anew by `replace`
};

}  // namespace shmap
