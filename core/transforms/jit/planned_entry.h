// The plans of programs that jit called eagerly: of global arrays, and of the blocks of a body.
#pragma once
#include <string>
#include <vector>

#include "core/compiler/lowering/per_device.h"
#include "core/transforms/jit/cache.h"

namespace shmap::detail {

// The trace of the body of a shard_map in which the program is called eagerly; null elsewhere.
PerDeviceTrace* body_of(const Scope& scope);

// Plans the program where it is called eagerly, and compares the arguments of its first call.
// shown: see PassContext.
void plan_entry(Entry& entry, const FlatTree& arguments, PerDeviceTrace* body, SourceLine source,
                std::string* shown = nullptr);

// Runs the plan or, where there is none, the program operation by operation. body: body_of() the
// entry's scope.
std::vector<Array> run_entry(Entry& entry, std::vector<Array>&& leaves, PerDeviceTrace* body,
                             SourceLine source);

}  // namespace shmap::detail
