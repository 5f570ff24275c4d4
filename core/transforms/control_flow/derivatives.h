// Derivatives of control flow: of while, scan and cond as equations. Loops and branches that run at
// once are differentiated op by op, and need none of this.
#pragma once
#include <vector>

#include "core/ir/rules.h"
#include "core/transforms/control_flow/control_flow.h"

namespace shmap {

// Of the carries those get tangents that the inits' reach, trip by trip.
//
// scan: where tangents are computed beside the primals, one scan of both. Where a linear program is
// built, a scan of the primals that also gives what the linear one needs of each trip, and a linear
// scan. What does not change from trip to trip is kept once, and computed outside.
void jvp_scan(JvpCall& call);
// while: the linear program carries the primals along, since nobody knows how many trips' values
// would have to be kept; it cannot be transposed.
void jvp_while(JvpCall& call);
// cond: results of the branches' primal parts are what any branch's linear part needs, with zeros
// for what the branch taken does not. Where the index varies over devices, operands of the linear
// part that vary less are cast outside of the branches: none of them is left alone with a
// collective when it is transposed.
void jvp_cond(JvpCall& call);

// A loop the other way round: it carries cotangents of the carry, and sums of those of constants.
void transpose_scan(TransposeCall& call);
void transpose_cond(TransposeCall& call);

// ---- what these are written with
using Flags = std::vector<bool>;

// Where a linear program is built (control_flow_linearize.cpp).
void linearize_scan(JvpCall& call, const ScanLoopParams& p);
void linearize_cond(JvpCall& call, const CondParams& p);

FlowSite site_of(const JvpCall& call);
// Which of the operands from `first` on have tangents.
Flags active_operands(const JvpCall& call, std::size_t first);
// results: those of the primals, or none where they have been given; and the tangents of the active
// ones.
void give_results(JvpCall& call, const Flags& active_out, std::span<const Array> primals,
                  std::span<const Array> tangents);
// The derivative of a body, made until the carries that have tangents are those that it gives
// tangents to. active: of its arguments, of which the carry begins at `first`.
template <class Make>
auto settle(Flags& active, std::size_t first, std::size_t carries, std::size_t results, Make make) {
  for (;;) {
    Flags wanted(results);
    for (std::size_t k = 0; k < carries; ++k) wanted[k] = active[first + k];
    auto made = make(active, wanted);
    bool grew = false;
    for (std::size_t k = 0; k < carries; ++k) {
      if (!made.active_out[k] || active[first + k]) continue;
      active[first + k] = grew = true;
    }
    if (!grew) return made;
  }
}
// One derivative a branch, all with the same active results.
template <class Program, class Make>
std::vector<Program> join_active(const std::vector<JaxprRef>& branches, Make make) {
  std::vector<Program> made;
  Flags joint;
  for (const JaxprRef& b : branches) {
    made.push_back(make(b, Flags()));
    joint.resize(made.back().active_out.size());
    for (std::size_t o = 0; o < joint.size(); ++o) joint[o] = joint[o] || made.back().active_out[o];
  }
  for (std::size_t b = 0; b < branches.size(); ++b)
    if (made[b].active_out != joint) made[b] = make(branches[b], joint);
  return made;
}

// A program whose first arguments are given.
struct ClosedBody {
  JaxprRef jaxpr;
  std::vector<Array> consts;
  void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const;
};
// Results that are a list of leaves.
void give_leaves(std::vector<Array> leaves, detail::FlatTree& result);
void append_to(std::vector<Array>& values, std::span<const Array> more);
// A program of some equations of `like`, in its scope, without dead code.
JaxprRef program_of(const Jaxpr& like, std::vector<VarRef> binders, std::vector<Eqn> eqns,
                    std::vector<Atom> outs);
// The program for arguments that vary over these axes too, as its results then do: itself where
// there are none, or where variance is only inferred.
JaxprRef widen_all(const JaxprRef& jaxpr, const AxisSet& axes);
// x cast to vary over these axes too; itself where variance is only inferred.
Array widened(const Array& x, const AxisSet& axes, SourceLine source);
bool any_of(const Flags& flags);

}  // namespace shmap
