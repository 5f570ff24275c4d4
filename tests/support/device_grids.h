// The devices of all processes as meshes of several shapes, for tests of collectives.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {

inline std::int64_t device_count() {
  static const auto n = static_cast<std::int64_t>(devices().size());
  return n;
}

inline bool on_gpus() { return devices().front().kind() == DeviceKind::cuda; }

// A mesh of that size. Of several processes each drives equally many of the mesh's devices, if
// possible: a process that drives none of them cannot use the mesh.
inline Mesh mesh_in_all_processes(const Shape& sizes, const Axes& names) {
  const std::vector<Device> all = devices();
  const std::int64_t n = sizes.num_elements(),
                     every = device_count() / std::max<std::int64_t>(n, 1);
  if (process_count() == 1 || every <= 1) return make_mesh(sizes, names);
  std::vector<Device> some;
  for (std::int64_t k = 0; k < n; ++k) some.push_back(all[static_cast<std::size_t>(k * every)]);
  return Mesh(NdArray<Device>(some, sizes), names);
}

// Whether this process drives a device of the mesh, without which it cannot use the mesh.
inline bool has_device_of(const Mesh& mesh) {
  const std::vector<Device>& all = mesh.devices().values();
  return std::any_of(all.begin(), all.end(),
                     [](const Device& d) { return d.process_index() == process_index(); });
}

// All devices as a mesh, with the positions of its cliques, which the test computes itself.
struct Grid {
  Mesh mesh;
  std::vector<std::int64_t> sizes;
  Axes all;

  // The positions of the clique of `position` over those axes, by rank.
  std::vector<std::size_t> clique(std::size_t position, const std::vector<int>& axes) const {
    std::vector<std::int64_t> at = coordinates(position);
    std::int64_t ranks = 1;
    for (int a : axes) ranks *= sizes[static_cast<std::size_t>(a)];
    std::vector<std::size_t> members;
    for (std::int64_t r = 0; r < ranks; ++r) {
      std::int64_t rest = r;
      for (std::size_t k = axes.size(); k-- > 0;) {
        const auto a = static_cast<std::size_t>(axes[k]);
        at[a] = rest % sizes[a];
        rest /= sizes[a];
      }
      members.push_back(position_of(at));
    }
    return members;
  }
  std::vector<std::int64_t> coordinates(std::size_t position) const {
    std::vector<std::int64_t> at(sizes.size());
    for (std::size_t a = sizes.size(); a-- > 0;) {
      at[a] = static_cast<std::int64_t>(position) % sizes[a];
      position /= static_cast<std::size_t>(sizes[a]);
    }
    return at;
  }
  std::size_t position_of(const std::vector<std::int64_t>& at) const {
    std::int64_t p = 0;
    for (std::size_t a = 0; a < sizes.size(); ++a) p = p * sizes[a] + at[a];
    return static_cast<std::size_t>(p);
  }
};

inline Grid line() {
  return {make_mesh({static_cast<int>(device_count())}, "i"), {device_count()}, Axes("i")};
}
inline Grid grid_of(std::int64_t rows, std::int64_t columns) {
  return {make_mesh({static_cast<int>(rows), static_cast<int>(columns)}, axes("i", "j")),
          {rows, columns},
          axes("i", "j")};
}
inline Grid square() { return grid_of(device_count() / 2, 2); }  // 4 x 2 of eight
inline Grid wide() { return grid_of(2, device_count() / 2); }
// Neighbours in the mesh are in different processes.
inline Grid crossed() {
  std::vector<Device> all = devices();
  std::vector<Device> turned;
  const std::size_t rows = all.size() / 2;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < 2; ++j) turned.push_back(all[j * rows + i]);
  const auto n = static_cast<std::int64_t>(rows);
  return {Mesh(NdArray<Device>(turned, Shape{n, 2}), axes("i", "j")), {n, 2}, axes("i", "j")};
}

// A grid, and the axes over which a collective goes.
struct Over {
  Grid grid;
  Axes axes;
  std::vector<int> indices;
  std::string text;
};
inline std::vector<Over> everywhere() {
  std::vector<Over> all;
  all.push_back({line(), "i", {0}, "line i"});
  for (const auto& [grid, name] :
       {std::pair(square(), "4x2"), std::pair(wide(), "2x4"), std::pair(crossed(), "crossed")}) {
    all.push_back({grid, "i", {0}, std::string(name) + " i"});
    all.push_back({grid, "j", {1}, std::string(name) + " j"});
    all.push_back({grid, axes("i", "j"), {0, 1}, std::string(name) + " i,j"});
    all.push_back({grid, axes("j", "i"), {1, 0}, std::string(name) + " j,i"});
  }
  return all;
}

}  // namespace shmap
