// Lets a reduction of columns compute its operand inside its own loop (fuse_columns) also where a
// cheap intermediate value is read again later. Example: x - mean(x, 0), whose squares are summed,
// and which is then scaled.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Copies the first operation of a chain of elementwise operations that a reduction of the outermost
// dims reads, if it is a sum, difference or product with one stored array and all its other readers
// need the reduction first. The chain then reads the copy alone, and the later readers compute the
// value again from the array, instead of storing it. Returns `jaxpr` itself if there is nothing to
// copy. Runs before fuse(), for the backends of fuse_columns(). Results keep their bits.
JaxprRef copy_for_columns(const Jaxpr& jaxpr);

}  // namespace shmap
