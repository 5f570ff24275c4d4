// Chooses the shardings of the arguments of a program of global arrays that have none.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "core/array/sharding.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// One sharding for each argument after the first `consts` binders. `given`: the known shardings;
// null for an argument whose sharding is to be chosen. The choice is, in this order: the first
// sharding, in the order of the program, with which a constraint or a mapped function takes the
// argument, or to which an operation with split operands moves it; the sharding that a split result
// needs, by the factors of operations; a copy on each device. Where a program works on several
// meshes, copies.
std::vector<const Sharding*> argument_shardings(const Jaxpr& jaxpr, std::size_t consts,
                                                const detail::MeshImpl* mesh,
                                                std::span<const Sharding* const> given);

// One sharding for each of the first `consts` binders: the sharding in which every use takes it, or
// a copy on each device where uses differ. `arguments`: the shardings of the other binders.
std::vector<const Sharding*> constant_shardings(const Jaxpr& jaxpr, std::size_t consts,
                                                const detail::MeshImpl* mesh,
                                                std::span<const Sharding* const> arguments);

}  // namespace shmap
