// The inside of a Mesh: interned, immutable, never freed, so that a pointer is a mesh and comparing
// pointers compares meshes. A single device is a mesh without axes, so "placed on one device" is no
// special case.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "core/device/backend.h"
#include "shmap/mesh.h"
#include "shmap/partition_spec.h"

namespace shmap {

class Sharding;

// Local devices that compute a value once for all: those of one memory space at equal coordinates
// of the axes over which the value varies. Positions index the mesh's local devices.
struct Cohorts {
  std::vector<std::uint32_t> leader;   // of each local position
  std::vector<std::uint32_t> leaders;  // ascending
  bool identity = true;                // every position leads itself
};

// The groups of ranks that a collective over some axes runs in: those with local devices.
struct Cliques {
  static constexpr std::uint32_t kElsewhere = ~0u;  // in the place of another process's device
  // [clique][rank] -> local position; ranks row-major over the axes in the order given.
  std::vector<std::vector<std::uint32_t>> members;
  std::vector<std::uint32_t> clique_of;  // of each local position
  std::vector<std::uint32_t> rank_of;    // of each local position
};

namespace detail {

class MeshImpl {
 public:
  static const MeshImpl* intern(const AxisEnv* env, const NdArray<Device>& devices);
  static const MeshImpl* single(const Device& device);  // one device, no axes
  static const MeshImpl* default_device();
  // Axes and sizes alone: shardings and types are known, and nothing can run.
  static const MeshImpl* abstract(const AxisEnv* env);

  const AxisEnv* env() const { return env_; }
  const NdArray<Device>& devices() const { return devices_; }
  std::int64_t size() const { return static_cast<std::int64_t>(devices_.values().size()); }
  bool is_abstract() const { return backend_ == nullptr; }
  bool is_single() const { return single_; }
  bool fully_addressable() const { return fully_addressable_; }

  // The devices that this process drives, in mesh order.
  std::uint32_t local_count() const { return static_cast<std::uint32_t>(locals_.size()); }
  const LocalDevice& local(std::uint32_t position) const { return *locals_[position]; }
  // Row-major position in the whole mesh, and the coordinate on an axis.
  std::int64_t global_position(std::uint32_t local) const { return positions_[local]; }
  std::int64_t coordinate(std::uint32_t local, int axis) const {
    return coordinate_at(positions_[local], axis);
  }
  std::int64_t coordinate_at(std::int64_t global_position, int axis) const;
  std::vector<std::int64_t> coordinates(std::uint32_t local) const;
  Backend& backend() const { return *backend_; }

  const Cohorts& cohorts(std::uint32_t varying_axes) const;
  const Cliques& cliques(const std::vector<int>& axes) const;  // axes: indices, major first
  const Sharding* sharding(
      const PartitionSpec& spec) const;  // interned; the spec has been validated
  const Sharding* replicated() const { return replicated_; }

  // The same in every process: a hash of axes, sizes and the devices in their places.
  std::uint64_t name() const { return name_; }
  // Numbers for collectives that leave the process: every process of the mesh takes as many, in the
  // order of the program. Returns the first of `count`.
  std::uint64_t take_numbers(std::uint64_t count) const {
    return numbers_.fetch_add(count, std::memory_order_relaxed);
  }

 private:
  MeshImpl(const AxisEnv* env, NdArray<Device> devices);
  explicit MeshImpl(const AxisEnv* env);
  const AxisEnv* env_;
  NdArray<Device> devices_;
  std::vector<const LocalDevice*> locals_;
  std::vector<std::int64_t> positions_;
  Backend* backend_ = nullptr;
  bool single_ = false;
  bool fully_addressable_ = true;
  std::uint64_t name_ = 0;
  mutable std::atomic<std::uint64_t> numbers_{0};
  const Sharding* replicated_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::map<std::uint32_t, Cohorts*> cohorts_;
  mutable std::map<std::vector<int>, Cliques*> cliques_;
  mutable std::vector<const Sharding*> shardings_;
  // Cohorts by mask, for the masks of meshes with few axes: read at every op, without a lock.
  static constexpr std::uint32_t kCachedMasks = 16;
  mutable std::array<std::atomic<const Cohorts*>, kCachedMasks> fast_cohorts_{};
};

}  // namespace detail
}  // namespace shmap
