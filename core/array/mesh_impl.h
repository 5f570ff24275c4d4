// The implementation of Mesh. A MeshImpl is interned, immutable and never freed: equal meshes have
// equal pointers. A single device is a mesh without axes, so that an array on one device needs no
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

// A cohort: the local devices for which one of them, the leader, computes a value. They are in one
// memory space and have equal coordinates on the axes over which the value varies. Positions index
// the mesh's local devices.
struct Cohorts {
  std::vector<std::uint32_t> leader;   // by local position: the leader of its cohort
  std::vector<std::uint32_t> leaders;  // all leaders, ascending
  bool identity = true;                // every position is its own leader
};

// The cliques of a collective over some axes: the sets of devices that communicate. Only cliques
// with local devices are listed.
struct Cliques {
  static constexpr std::uint32_t kElsewhere = ~0u;  // stands for a device of another process
  // [clique][rank] -> local position; ranks are row-major over the axes in the order given.
  std::vector<std::vector<std::uint32_t>> members;
  std::vector<std::uint32_t> clique_of;  // by local position
  std::vector<std::uint32_t> rank_of;    // by local position
};

namespace detail {

class MeshImpl {
 public:
  static const MeshImpl* intern(const AxisEnv* env, const NdArray<Device>& devices);
  static const MeshImpl* single(const Device& device);  // one device, no axes
  static const MeshImpl* default_device();
  // A mesh of axis names and sizes without devices: types and shardings can be computed, but
  // nothing can run.
  static const MeshImpl* abstract(const AxisEnv* env);

  const AxisEnv* env() const { return env_; }
  const NdArray<Device>& devices() const { return devices_; }
  std::int64_t size() const { return static_cast<std::int64_t>(devices_.values().size()); }
  bool is_abstract() const { return backend_ == nullptr; }
  bool is_single() const { return single_; }
  bool fully_addressable() const { return fully_addressable_; }

  // The processes that drive the devices, each once, in the order of their first devices.
  std::vector<int> processes() const;
  // The devices that this process drives, in mesh order.
  std::uint32_t local_count() const { return static_cast<std::uint32_t>(locals_.size()); }
  const LocalDevice& local(std::uint32_t position) const { return *locals_[position]; }
  // The row-major position in the whole mesh, and the coordinate along an axis.
  std::int64_t global_position(std::uint32_t local) const { return positions_[local]; }
  std::int64_t coordinate(std::uint32_t local, int axis) const {
    return coordinate_at(positions_[local], axis);
  }
  std::int64_t coordinate_at(std::int64_t global_position, int axis) const;
  std::vector<std::int64_t> coordinates(std::uint32_t local) const;
  Backend& backend() const { return *backend_; }

  const Cohorts& cohorts(std::uint32_t varying_axes) const;
  const Cliques& cliques(const std::vector<int>& axes) const;  // axes: indices, major first
  // The interned sharding of this mesh with that spec. The spec must have been validated.
  const Sharding* sharding(const PartitionSpec& spec) const;
  const Sharding* replicated() const { return replicated_; }

  // A hash of the axes, their sizes and the devices in mesh order: equal in every process.
  std::uint64_t name() const { return name_; }
  // Numbers for collectives that leave the process. Every process of the mesh takes the same
  // numbers, in program order. Returns the first of `count` new numbers.
  std::uint64_t take_numbers(std::uint64_t count) const {
    return numbers_.fetch_add(count, std::memory_order_relaxed);
  }
  // Undoes the latest take_numbers, which returned `first`: nothing has been sent under these
  // numbers. The caller has held the submit mutex since then.
  void give_numbers_back(std::uint64_t first) const {
    numbers_.store(first, std::memory_order_relaxed);
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
  // The cohorts by mask of varying axes, for meshes with few axes: every operation reads them,
  // without a lock.
  static constexpr std::uint32_t kCachedMasks = 16;
  mutable std::array<std::atomic<const Cohorts*>, kCachedMasks> fast_cohorts_{};
};

}  // namespace detail
}  // namespace shmap
