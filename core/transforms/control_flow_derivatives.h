// Derivatives of control flow: of while, scan and cond as equations. Loops and branches that run at
// once are differentiated op by op, and need none of this.
#pragma once
#include <vector>

#include "core/ir/rules.h"
#include "core/transforms/control_flow.h"

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
