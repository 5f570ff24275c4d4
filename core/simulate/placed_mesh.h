// A mesh on a machine of levels, and what collectives over its axes take there.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/jaxpr.h"
#include "shmap/simulate.h"

namespace shmap {

// ValueError where a rate, a latency or a size is none.
void check_topology(const Topology& topology);

class PlacedMesh {
 public:
  // env: the mesh's axes; null: one device. ValueError where the machine is too small, or an axis
  // does not divide into its levels.
  PlacedMesh(const Topology& topology, const detail::AxisEnv* env);

  struct Price {
    double us = 0;
    std::size_t level = 0;  // the outermost one that it uses, whose lane it takes
  };
  // Of an equation that moves data between devices.
  Price price(const Eqn& collective) const;

 private:
  // How many devices of a collective over these axes each level joins.
  std::vector<std::int64_t> joined(const std::vector<std::string>& axes) const;
  // The outermost level at which two ranks of such a collective are apart; -1: they are one.
  int level_between(const std::vector<std::string>& axes, std::int64_t a, std::int64_t b) const;
  int axis(const std::string& name) const;

  const Topology& topology_;
  const detail::AxisEnv* env_;
  std::vector<std::vector<std::int64_t>> factors_;  // [axis][level]: their product is the size
};

}  // namespace shmap
