// How the arguments of a program of global arrays lie on its mesh where nobody said it.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "core/array/sharding.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// One sharding for each argument behind the first `consts` binders. `given`: those that are known,
// null where one is to be chosen: as a constraint or a mapped function takes the argument; as
// operations bring it to where their split operands are; as a split result is made of it, by the
// factors of operations; or else a copy on each device. Programs over several meshes: copies.
std::vector<const Sharding*> argument_shardings(const Jaxpr& jaxpr, std::size_t consts,
                                                const detail::MeshImpl* mesh,
                                                std::span<const Sharding* const> given);

// For each of the first `consts` binders: the sharding in which every use of it takes it; a copy on
// each device where uses differ. `arguments`: of the others.
std::vector<const Sharding*> constant_shardings(const Jaxpr& jaxpr, std::size_t consts,
                                                const detail::MeshImpl* mesh,
                                                std::span<const Sharding* const> arguments);

}  // namespace shmap
