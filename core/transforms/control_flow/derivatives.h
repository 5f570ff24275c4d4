// Derivatives of while, scan and cond as equations. Loops and branches that run eagerly are
// differentiated operation by operation and do not use this file.
#pragma once
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/ir/rules.h"
#include "core/transforms/control_flow/flow_primitives.h"
#include "core/transforms/control_flow/flow_site.h"
#include "shmap/tree.h"

namespace shmap {

// The carries that get tangents are those that the tangents of the inits and of other operands
// reach in any number of trips.
//
// scan: where tangents are computed together with the primals, one scan computes both. Where a
// linear program is built, there are two scans: one of the primals, which also returns the
// residuals of each trip, and a linear one. Residuals that are the same in all trips are kept once,
// and computed outside of the loop.
void jvp_scan(JvpCall& call);
// while: the linear program carries the primals along, because the number of trips is not known,
// and so neither is the memory that residuals would need. The program cannot be transposed.
void jvp_while(JvpCall& call);
// cond: the primal equation returns residuals for the linear part of any branch; the residuals of
// branches that were not taken are zeros. Where the index varies over devices, operands of the
// linear part that vary over fewer axes are cast outside of the branches. The transposes of these
// casts, which are collectives, are then outside of the branches too, where all devices call them.
void jvp_cond(JvpCall& call);

// The transposed loop runs in reverse. It carries the cotangents of the carry, and sums of the
// cotangents of constants.
void transpose_scan(TransposeCall& call);
void transpose_cond(TransposeCall& call);

// ---- helpers
using Flags = std::vector<bool>;

// Used where a linear program is built (linearize.cpp).
void linearize_scan(JvpCall& call, const ScanLoopParams& p);
void linearize_cond(JvpCall& call, const CondParams& p);

FlowSite site_of(const JvpCall& call);
// Which of the operands from `first` on have tangents.
Flags active_operands(const JvpCall& call, std::size_t first);
// Fills the call's results: the primals (empty: the caller has filled them), and the tangents of
// the active results.
void give_results(JvpCall& call, const Flags& active_out, std::span<const Array> primals,
                  std::span<const Array> tangents);
// Makes the derivative of a body. Repeats it until the carries with tangents at the start of a trip
// are those with tangents at its end. active: the body's arguments with tangents; the carry starts
// at argument `first`.
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
// One derivative for each branch, all with the same active results.
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

// Adds to `of`, some arguments of a loop's body, the carries that depend on them after any number
// of trips; the carry starts at argument `first`. Returns which of the body's results depend on
// them.
Flags spread_to_carries(const Jaxpr& body, std::size_t first, std::size_t carries, Flags& of);

// A program with values for its first arguments.
struct ClosedBody {
  JaxprRef jaxpr;
  std::vector<Array> consts;
  void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const;
};
// Sets `result` to a list of leaves.
void give_leaves(std::vector<Array> leaves, detail::FlatTree& result);
void append_to(std::vector<Array>& values, std::span<const Array> more);
// A program of equations of `like`, with its mesh axes and without dead code.
JaxprRef program_of(const Jaxpr& like, std::vector<VarRef> binders, std::vector<Eqn> eqns,
                    std::vector<Atom> outs);
// The program for arguments that vary over these axes too, whose results then vary over them. The
// same program where there are no axes, or where variance is only inferred.
JaxprRef widen_all(const JaxprRef& jaxpr, const AxisSet& axes);
// x cast to vary over these axes too; x itself where variance is only inferred.
Array widened(const Array& x, const AxisSet& axes, SourceLine source);
bool any_of(const Flags& flags);

}  // namespace shmap
