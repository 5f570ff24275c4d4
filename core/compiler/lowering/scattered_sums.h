// Sums over devices of which each device keeps a part.
#pragma once
#include "core/compiler/lowering/lower_log.h"

namespace shmap {

// Replaces a psum by a psum_scatter if only parts of its result are used: by a pscatter over the
// same axes, directly or after elementwise operations, which then work on parts too. Values keep
// their bits, and half as many bytes are communicated. Lowering cannot choose psum_scatter itself,
// because it does not know how later equations split the result. log: receives each such sum; may
// be null. Programs inside equations are left as they are.
JaxprRef scatter_sums(const JaxprRef& blocks, LowerLog* log);

}  // namespace shmap
