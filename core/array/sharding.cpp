#include "core/array/sharding.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "core/base/nearest_name.h"

namespace shmap {

Sharding::Sharding(const detail::MeshImpl* mesh, std::vector<std::vector<int>> dims)
    : mesh_(mesh), dims_(std::move(dims)) {
  for (const std::vector<int>& axes : dims_) {
    std::int64_t n = 1;
    for (int a : axes) {
      n *= mesh_->env()->sizes[static_cast<std::size_t>(a)];
      mentioned_ |= 1u << a;
    }
    parts_.push_back(n);
  }
}

PartitionSpec Sharding::spec() const {
  std::vector<PartitionSpec::Entry> entries;
  for (const std::vector<int>& axes : dims_) {
    std::vector<std::string> names;
    for (int a : axes) names.push_back(mesh_->env()->names[static_cast<std::size_t>(a)]);
    entries.emplace_back(Axes(names));
  }
  return PartitionSpec(std::move(entries));
}

namespace {
std::string axes_with_sizes(const detail::AxisEnv& env, const std::vector<int>& axes) {
  std::string s;
  std::int64_t total = 1;
  for (int a : axes) {
    s += (s.empty() ? "'" : ", '") + env.names[static_cast<std::size_t>(a)] + "' of size " +
         std::to_string(env.sizes[static_cast<std::size_t>(a)]);
    total *= env.sizes[static_cast<std::size_t>(a)];
  }
  if (axes.size() > 1) return "mesh axes " + s + " (total size " + std::to_string(total) + ")";
  return "mesh axis " + s;
}
}  // namespace

Shape Sharding::block_shape(const Shape& global, const std::string& what) const {
  if (dims_.size() > global.size()) {
    throw ValueError(
        what + ": the spec " + to_string(spec()) + " has length " + std::to_string(dims_.size()) +
        ", which is more than the rank " + std::to_string(global.size()) +
        " of an array of shape " + to_string(global) +
        (global.empty() ? ": a scalar's spec is P()" : ": leave out the last entries"));
  }
  Shape block = global;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    if (parts_[d] == 1) continue;
    if (global[d] % parts_[d] != 0) {
      throw ValueError(what + ": dim " + std::to_string(d) + " of an array of shape " +
                       to_string(global) + " has size " + std::to_string(global[d]) +
                       ", which is not evenly divisible by " +
                       axes_with_sizes(*mesh_->env(), dims_[d]) + ", over which the spec " +
                       to_string(spec()) + " splits it (mesh " + describe_axes(*mesh_->env()) +
                       "): pad the dim to a multiple, or leave the axis out of the spec");
    }
    block[d] = global[d] / parts_[d];
  }
  return block;
}

Shape Sharding::global_shape(const Shape& block) const {
  Shape global = block;
  for (std::size_t d = 0; d < dims_.size(); ++d)
    global[d] = checked_product(block[d], parts_[d], "global extent");
  return global;
}

void Sharding::block_start(std::uint32_t local, const Shape& block, std::int64_t* start) const {
  for (std::size_t d = 0; d < block.size(); ++d) {
    std::int64_t chunk = 0;
    if (d < dims_.size()) {
      for (int a : dims_[d])
        chunk =
            chunk * mesh_->env()->sizes[static_cast<std::size_t>(a)] + mesh_->coordinate(local, a);
    }
    start[d] = chunk * block[d];
  }
}

std::vector<Slice> Sharding::index(std::uint32_t local, const Shape& global) const {
  const Shape block = block_shape(global, "sharding");
  std::int64_t start[kMaxRank];
  block_start(local, block, start);
  std::vector<Slice> out;
  for (std::size_t d = 0; d < block.size(); ++d) out.push_back({start[d], start[d] + block[d]});
  return out;
}

std::string describe_axes(const detail::AxisEnv& env) {
  std::string s;
  for (std::size_t i = 0; i < env.names.size(); ++i)
    s += (i ? ", '" : "'") + env.names[i] + "': " + std::to_string(env.sizes[i]);
  return s.empty() ? "without axes" : s;
}

namespace {
std::vector<int> device_ids(const detail::MeshImpl& mesh) {
  std::vector<int> ids;
  for (const Device& d : mesh.devices().values()) ids.push_back(d.id());
  return ids;
}
}  // namespace

std::string describe_mesh(const detail::MeshImpl& mesh) {
  constexpr std::size_t kShown = 16;
  const std::vector<int> ids = device_ids(mesh);
  const std::string axes =
      mesh.env()->names.empty() ? "" : "Mesh(" + describe_axes(*mesh.env()) + ") of ";
  if (ids.empty()) return axes + "no devices";
  if (ids.size() == 1) return axes + "device " + std::to_string(ids[0]);
  bool in_a_row = true;
  for (std::size_t i = 1; i < ids.size(); ++i) in_a_row = in_a_row && ids[i] == ids[i - 1] + 1;
  if (in_a_row && ids.size() > 2) {
    return axes + "devices " + std::to_string(ids.front()) + " to " + std::to_string(ids.back());
  }
  std::string list;
  for (std::size_t i = 0; i < ids.size() && i < kShown; ++i)
    list += (i ? ", " : "") + std::to_string(ids[i]);
  return axes + "devices " + list + (ids.size() > kShown ? ", …" : "");
}

std::string mesh_difference(const detail::MeshImpl& a, const detail::MeshImpl& b) {
  const std::vector<int> x = device_ids(a), y = device_ids(b);
  const std::set<int> in_x(x.begin(), x.end()), in_y(y.begin(), y.end());
  const std::string n = std::to_string(in_x.size());
  if (x == y) return "the same " + n + " devices with other axes";
  if (in_x == in_y) return "the same " + n + " devices in another order";
  std::vector<int> both;
  std::set_intersection(in_x.begin(), in_x.end(), in_y.begin(), in_y.end(),
                        std::back_inserter(both));
  if (both.empty()) return "different devices";
  return "different devices, of which they have " + std::to_string(both.size()) + " in common";
}

void validate_spec(const PartitionSpec& spec, const detail::AxisEnv& env, const std::string& what) {
  std::uint32_t seen = 0;
  for (std::size_t d = 0; d < spec.size(); ++d) {
    for (const std::string& name : spec[d].axes) {
      const int axis = env.find(name);
      if (axis < 0) {
        throw ValueError(what + " = " + to_string(spec) + " refers to mesh axis '" + name +
                         "' at position " + std::to_string(d) + did_you_mean(name, env.names) +
                         ", and the mesh has the axes " + describe_axes(env) +
                         ": use one of these names");
      }
      if (seen >> axis & 1u) {
        throw ValueError(what + " = " + to_string(spec) + " mentions mesh axis '" + name +
                         "' more than once (again at position " + std::to_string(d) +
                         "): a mesh axis may split at most one dim of an array");
      }
      seen |= 1u << axis;
    }
  }
}

}  // namespace shmap
