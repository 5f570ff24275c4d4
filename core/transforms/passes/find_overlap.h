// Finding overlapped products: a jaxpr in which products of gathered operands, and products that
// are summed and scattered, have become the ops of a form that does both at once.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Of a program of blocks that calls no others. What the model says is no faster stays as it was; so
// does all where SHMAP_FIND_OVERLAP is off. Programs inside equations are left as they are.
//
//   gather   dot_general of which an operand is an all_gather (or an all_gather_invariant), tiled
//            and over all ranks, that nothing else reads; casts between the two
//   scatter  psum_scatter, tiled and over all ranks, of a dot_general that nothing else reads, or
//   of
//            a transposition of one
JaxprRef find_overlap(const JaxprRef& jaxpr);

// What does it, which knows the collectives; set by their registration.
using FindOverlapFn = JaxprRef (*)(const JaxprRef& jaxpr);
void set_find_overlap(FindOverlapFn fn);

}  // namespace shmap
