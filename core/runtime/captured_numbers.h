// The numbers of collectives that leave the process, while this thread captures a graph: there they
// count from 0, and a launch adds the first of as many that it takes (MeshImpl::take_numbers, and
// Graph::launch's ticket). So a replay has the numbers that the same steps would have one by one.
#pragma once
#include <cstdint>

#include "core/array/mesh_impl.h"

namespace shmap {

// Where devices take different ways, so may processes, and count apart: the mesh axes over which
// they do now, on this thread. Those that can meet there agree on these axes' coordinates, and so
// on the ways that they take.
std::uint32_t divergent_axes(const detail::MeshImpl& mesh);
// Of those that count together: as MeshImpl::name and take_numbers, which are those of no axes.
std::uint64_t number_space(const detail::MeshImpl& mesh, std::uint32_t divergent);
std::uint64_t take_numbers(const detail::MeshImpl& mesh, std::uint32_t divergent,
                           std::uint64_t count);

inline std::uint64_t& captured_numbers() noexcept {
  static thread_local std::uint64_t count = 0;
  return count;
}

}  // namespace shmap
