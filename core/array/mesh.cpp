#include "shmap/mesh.h"

#include <limits>
#include <ostream>
#include <set>

#include "core/array/mesh_impl.h"
#include "core/array/node_order.h"
#include "core/array/same_meshes.h"
#include "core/array/sharding.h"
#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "core/ir/trace.h"
#include "core/processes/processes.h"

namespace shmap {

namespace detail {
void check_nd_array(std::size_t values, const Shape& shape, SourceLine source) {
  if (shape.num_elements() != static_cast<std::int64_t>(values)) {
    throw ValueError("NdArray: " + std::to_string(values) + " values do not fill the shape " +
                     to_string(shape) + ", which has " + std::to_string(shape.num_elements()) +
                     " places: give as many values as the product of the extents" +
                     at_line(source));
  }
}
}  // namespace detail

namespace {

// All devices, sorted so that those of a node follow each other.
std::vector<Device> devices_by_node() {
  std::vector<Device> all = devices();
  const Processes* processes = Processes::joined();
  if (processes == nullptr) return all;
  std::vector<int> nodes;
  for (const Device& d : all) nodes.push_back(processes->peers().node_of(d.process_index()));
  std::vector<Device> ordered;
  for (const std::size_t i : node_order(nodes)) ordered.push_back(all[i]);
  return ordered;
}

constexpr std::size_t kMaxAxes = 30;  // a set of axes is a bit mask

const detail::AxisEnv* make_env(const Shape& sizes, const Axes& names, const char* what,
                                SourceLine source) {
  const std::string given = std::string(what) + ": axis names " + to_string(names) +
                            " for axis sizes " + to_string(sizes);
  if (names.size() != sizes.size()) {
    throw ValueError(given + ": give one name for each of the " + std::to_string(sizes.size()) +
                     " axes" + at_line(source));
  }
  if (names.size() > kMaxAxes)
    throw ValueError(given + ": a mesh has at most " + std::to_string(kMaxAxes) + " axes" +
                     at_line(source));
  std::set<std::string> seen;
  for (const std::string& n : names) {
    if (n.empty()) throw ValueError(given + ": an axis name may not be empty" + at_line(source));
    if (!seen.insert(n).second)
      throw ValueError(given + ": the axis name '" + n +
                       "' is given twice: every axis has a name of its own" + at_line(source));
  }
  for (std::int64_t s : sizes) {
    if (s < 1) throw ValueError(given + ": every axis has a size of 1 or more" + at_line(source));
  }
  if (sizes.num_elements() > std::numeric_limits<int>::max()) {
    throw ValueError(given + ": a mesh has at most 2^31 - 1 positions: use smaller axes" +
                     at_line(source));
  }
  return detail::AxisEnv::intern(names.names(),
                                 std::vector<std::int64_t>(sizes.begin(), sizes.end()));
}

int size_of(const detail::AxisEnv& env, std::string_view name, SourceLine source) {
  const int axis = env.find(name);
  if (axis < 0) {
    throw ValueError("axis_size: the mesh has no axis '" + std::string(name) + "'" +
                     did_you_mean(name, env.names) + "; its axes are " + describe_axes(env) +
                     ": name one of these" + at_line(source));
  }
  return static_cast<int>(env.sizes[static_cast<std::size_t>(axis)]);
}

}  // namespace

AbstractMesh::AbstractMesh(Shape axis_sizes, Axes axis_names, SourceLine source)
    : env_(make_env(axis_sizes, axis_names, "AbstractMesh", source)) {}
int AbstractMesh::axis_size(std::string_view name, SourceLine source) const {
  return size_of(*env_, name, source);
}
std::int64_t AbstractMesh::size() const { return axis_sizes().num_elements(); }

Mesh::Mesh(NdArray<Device> devices, Axes axis_names, SourceLine source) {
  const detail::AxisEnv* env = make_env(devices.shape(), axis_names, "Mesh", source);
  std::set<int> seen;
  for (const Device& d : devices.values()) {
    const Device& first = devices.values().front();
    if (d.kind() != first.kind()) {
      throw ValueError(
          "Mesh: " + first.str() + " and " + d.str() +
          " cannot be in one mesh: the devices of a mesh are all CPUs or all GPUs. "
          "Take them all from devices(), which lists devices of one kind (SHMAP_DEVICES)" +
          at_line(source));
    }
    if (!seen.insert(d.id()).second) {
      throw ValueError("Mesh: device " + std::to_string(d.id()) +
                       " is given twice: a device has one place in a mesh" + at_line(source));
    }
  }
  impl_ = detail::MeshImpl::intern(env, devices);
  report_made(*impl_, source);
}

const std::vector<std::string>& Mesh::axis_names() const { return impl_->env()->names; }
int Mesh::axis_size(std::string_view name, SourceLine source) const {
  return size_of(*impl_->env(), name, source);
}
Shape Mesh::axis_sizes() const { return Shape(impl_->env()->sizes); }
std::int64_t Mesh::size() const { return impl_->size(); }
const NdArray<Device>& Mesh::devices() const { return impl_->devices(); }

std::string to_string(const Mesh& mesh) {
  return "Mesh(" + describe_axes(*mesh.impl()->env()) + ")";
}
std::ostream& operator<<(std::ostream& out, const Mesh& mesh) { return out << to_string(mesh); }
std::string to_string(const AbstractMesh& mesh) {
  return "AbstractMesh(" + describe_axes(*mesh.env()) + ")";
}
std::ostream& operator<<(std::ostream& out, const AbstractMesh& mesh) {
  return out << to_string(mesh);
}

Mesh make_mesh(Shape axis_sizes, Axes axis_names, std::vector<Device> given, SourceLine source) {
  make_env(axis_sizes, axis_names, "make_mesh", source);
  const bool all = given.empty();
  if (all) given = devices_by_node();
  const std::int64_t wanted = axis_sizes.num_elements();
  if (wanted > static_cast<std::int64_t>(given.size())) {
    throw ValueError(
        "make_mesh: a mesh of shape " + to_string(axis_sizes) + " has " + counted(wanted, "place") +
        ", and " + (all ? given.size() == 1 ? "there is " : "there are " : "the list given has ") +
        counted(given.size(), "device") + ": use smaller axes" +
        (all ? ", or start with more devices (SHMAP_DEVICES=cpu:" + std::to_string(wanted) +
                   ", or more processes under mpirun)"
             : "") +
        at_line(source));
  }
  given.erase(given.begin() + wanted, given.end());
  return Mesh(NdArray<Device>(std::move(given), axis_sizes, source), axis_names, source);
}

const detail::AxisEnv* AnyMesh::env() const { return mesh_ ? mesh_->env() : env_; }

}  // namespace shmap
