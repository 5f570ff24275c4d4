// Sharding: how an array's dims are split over one mesh; interned per mesh, so comparing pointers
// compares shardings.
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
  // Axes of each dim, major first; trailing dims without axes are left out.
  const std::vector<std::vector<int>>& dims() const { return dims_; }
  std::uint32_t mentioned() const { return mentioned_; }  // mask of all axes of all dims
  bool is_replicated() const { return mentioned_ == 0; }
  std::int64_t parts(std::size_t dim) const { return dim < parts_.size() ? parts_[dim] : 1; }
  PartitionSpec spec() const;

  // The extents of a device's block. ValueError naming `what` where the spec is longer than the
  // rank or a dim is not divisible; its text names dim, size, axes and sizes.
  Shape block_shape(const Shape& global, const std::string& what) const;
  Shape global_shape(const Shape& block) const;  // the inverse
  // Where the block of a local device lies: chunk index = mixed radix over the dim's axes, major
  // first.
  void block_start(std::uint32_t local, const Shape& block, std::int64_t* start) const;
  std::vector<Slice> index(std::uint32_t local, const Shape& global) const;

 private:
  const detail::MeshImpl* mesh_;
  std::vector<std::vector<int>> dims_;
  std::vector<std::int64_t> parts_;
  std::uint32_t mentioned_ = 0;
};

// Throws where `spec` names an axis that `env` has not, or one twice; `what` names the spec in the
// text ("in_specs[0]").
void validate_spec(const PartitionSpec& spec, const detail::AxisEnv& env, const std::string& what);
// "'i': 4, 'j': 2"
std::string describe_axes(const detail::AxisEnv& env);
// "Mesh('i': 4, 'j': 2) of devices 0 to 7"; of one device without axes "device 3".
std::string describe_mesh(const detail::MeshImpl& mesh);
// How two meshes differ that should be one: "the same 8 devices with other axes".
std::string mesh_difference(const detail::MeshImpl& a, const detail::MeshImpl& b);

}  // namespace shmap
