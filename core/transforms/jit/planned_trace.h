// Control flow inside of plans: the host decides, and the programs inside are plans of their own.
#pragma once
#include <memory>
#include <span>

#include "core/ir/jaxpr.h"
#include "core/runtime/plan.h"

namespace shmap {

// Whether a program called in an eager body may run as a plan here. Not in divergent code if the
// program prints (a plan cannot restrict the output to the active devices) or has a collective over
// an axis of the divergence (which a plan would not refuse).
bool may_be_planned(const Jaxpr& jaxpr);

// Runs an equation of control flow of a plan (core/runtime/plan.h, RunControl). `state` keeps the
// plans of the programs inside.
void run_control(const detail::MeshImpl& mesh, const Eqn& eqn, std::span<Array> in,
                 std::span<Array> out, std::unique_ptr<ControlState>& state);

}  // namespace shmap
