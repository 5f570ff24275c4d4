// A mesh on a machine of levels, and the times of collectives over its axes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/jaxpr.h"
#include "shmap/simulate.h"

namespace shmap {

// ValueError where a rate is not positive, or a latency or size is invalid.
void check_topology(const Topology& topology);

class PlacedMesh {
 public:
  // env: the mesh's axes; null: one device. ValueError where the machine is too small, or an axis
  // does not divide into its levels.
  PlacedMesh(const Topology& topology, const detail::AxisEnv* env);

  struct Price {
    double us = 0;
    std::size_t level = 0;  // the outermost level that it uses; it occupies the lane of that level
  };
  // The time of an equation that moves data between devices.
  Price price(const Eqn& collective) const;

 private:
  // For each level, the number of members that a collective over these axes joins.
  std::vector<std::int64_t> joined(const std::vector<std::string>& axes) const;
  // The outermost level that separates two ranks of a collective over these axes; -1 if both are
  // the same device.
  int level_between(const std::vector<std::string>& axes, std::int64_t a, std::int64_t b) const;
  int axis(const std::string& name) const;

  const Topology& topology_;
  const detail::AxisEnv* env_;
  // [axis][level]: the product over levels is the axis's size
  std::vector<std::vector<std::int64_t>> factors_;
};

}  // namespace shmap
