// The numbers of collectives that leave the process.
//
// Where devices take different branches or trips (core/ir/divergence.h), all devices with the same
// coordinates on the axes of the divergence take the same path, here called a way. A process may
// have devices on several ways, and then runs the code of each. A collective inside divergent code
// is over other axes, so all its devices are on one way. Each way therefore numbers its collectives
// separately.
//
// In a capture the numbers count from 0; each launch of the graph takes as many new numbers and
// adds the first of them (Graph::launch's ticket). A replay therefore uses the numbers that the
// same steps would use without a graph.
#pragma once
#include <cstdint>
#include <optional>

#include "core/array/mesh_impl.h"

namespace shmap {

// The mask of mesh axes over which devices take different ways now, on this thread.
std::uint32_t divergent_axes(const detail::MeshImpl& mesh);
// The name of a local device's way under a divergence over these axes: a hash, the same in all
// processes; 0 where the mask is 0.
std::uint64_t way_of(const detail::MeshImpl& mesh, std::uint32_t divergent, std::uint32_t position);
// The way of all active local devices: 0 where nothing diverges, or where all devices are local,
// and none where several ways are active.
std::optional<std::uint64_t> only_way(const detail::MeshImpl& mesh);

// MeshImpl::name and MeshImpl::take_numbers of a way; 0: the mesh's own.
std::uint64_t number_space(const detail::MeshImpl& mesh, std::uint64_t way);
std::uint64_t take_numbers(const detail::MeshImpl& mesh, std::uint64_t way, std::uint64_t count);
// MeshImpl::give_numbers_back.
void give_numbers_back(const detail::MeshImpl& mesh, std::uint64_t way, std::uint64_t first);

// How many numbers the graph takes that this thread captures.
inline std::uint64_t& captured_numbers() noexcept {
  static thread_local std::uint64_t count = 0;
  return count;
}

}  // namespace shmap
