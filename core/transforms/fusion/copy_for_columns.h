// Lets a reduction of columns make its operand as it goes (fuse_columns) also where a cheap value
// on the way is read again later. Example: x - mean(x, 0), whose squares are summed, and which is
// then scaled.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Where a reduction of the outermost dims reads a chain of elementwise operations of one reader
// each, which begins with a sum, difference or product of one stored array, and all other readers
// of this need the reduction first: the chain gets a copy of it. So nothing is stored for the later
// readers, which compute it again from the array. The program itself where there is nothing to
// copy. For the same backends as fuse_columns(), before fuse(). The same values, to the last bit.
JaxprRef copy_for_columns(const Jaxpr& jaxpr);

}  // namespace shmap
