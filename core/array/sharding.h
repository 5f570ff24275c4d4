// Sharding: how an array's dims are split over one mesh. Shardings are interned per mesh: equal
// shardings have equal pointers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/array/mesh_impl.h"
#include "shmap/array.h"
#include "shmap/partition_spec.h"

namespace shmap {

class Sharding {
 public:
  Sharding(const detail::MeshImpl* mesh, std::vector<std::vector<int>> dims);

  const detail::MeshImpl* mesh() const { return mesh_; }
  // The axes of each dim, major first; trailing dims without axes are omitted.
  const std::vector<std::vector<int>>& dims() const { return dims_; }
  std::uint32_t mentioned() const { return mentioned_; }  // mask of the axes of all dims
  bool is_replicated() const { return mentioned_ == 0; }
  std::int64_t parts(std::size_t dim) const { return dim < parts_.size() ? parts_[dim] : 1; }
  PartitionSpec spec() const;

  // The shape of a device's block. ValueError naming `what` where the spec is longer than the rank
  // or a dim is not divisible; the text names dim, size, axes and axis sizes.
  Shape block_shape(const Shape& global, const std::string& what) const;
  Shape global_shape(const Shape& block) const;  // the inverse of block_shape
  // Where the block of a local device begins in the global array. A dim's chunk number is a
  // mixed-radix number of the device's coordinates on the dim's axes, major first.
  void block_start(std::uint32_t local, const Shape& block, std::int64_t* start) const;
  std::vector<Slice> index(std::uint32_t local, const Shape& global) const;

 private:
  const detail::MeshImpl* mesh_;
  std::vector<std::vector<int>> dims_;
  std::vector<std::int64_t> parts_;
  std::uint32_t mentioned_ = 0;
};

// ValueError where `spec` names an axis that `env` does not have, or names one twice; `what` names
// the spec in the text ("in_specs[0]").
void validate_spec(const PartitionSpec& spec, const detail::AxisEnv& env, const std::string& what);
// "'i': 4, 'j': 2"
std::string describe_axes(const detail::AxisEnv& env);
// "Mesh('i': 4, 'j': 2) of devices 0 to 7"; for one device without axes, "device 3".
std::string describe_mesh(const detail::MeshImpl& mesh);
// How two meshes that should be equal differ: "the same 8 devices with other axes".
std::string mesh_difference(const detail::MeshImpl& a, const detail::MeshImpl& b);

}  // namespace shmap
