// Sums over devices of which each device keeps a part.
#pragma once
#include "core/transforms/lowering/lower_log.h"

namespace shmap {

// The program of blocks with a psum_scatter in the place of each psum of which nothing is used but
// parts, by a pscatter over the same axes, directly or after operations of its elements alone
// (which then work on parts, too): the same numbers, to the last bit, of half the communication. An
// equation of a global program does not know yet how its result will be split when it is lowered.
// log: told of each such sum; may be null. Programs inside equations are left as they are.
JaxprRef scatter_sums(const JaxprRef& blocks, LowerLog* log);

}  // namespace shmap
