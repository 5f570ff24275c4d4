// A mesh: devices arranged in an n-dimensional array, with a name for each axis (JEP 14273). A Mesh
// is a small handle; two equal meshes (the same devices in the same positions under the same axis
// names) share one object.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shmap/axes.h"
#include "shmap/device.h"
#include "shmap/error.h"
#include "shmap/shape.h"
#include "shmap/shaped_array.h"

namespace shmap {

namespace detail {
class MeshImpl;
void check_nd_array(std::size_t values, const Shape& shape, SourceLine source);
}  // namespace detail

// A row-major n-dimensional array of host values; Mesh takes its devices as one.
template <class T>
class NdArray {
 public:
  // ValueError where the number of values is not the product of the extents.
  NdArray(std::vector<T> values, Shape shape, SourceLine source = SourceLine::current())
      : values_(std::move(values)), shape_(shape) {
    detail::check_nd_array(values_.size(), shape_, source);
  }
  const Shape& shape() const { return shape_; }
  NdArray reshape(Shape shape, SourceLine source = SourceLine::current()) const {
    return NdArray(values_, shape, source);
  }
  const std::vector<T>& values() const { return values_; }
  friend bool operator==(const NdArray&, const NdArray&) = default;

 private:
  std::vector<T> values_;
  Shape shape_;
};

// Axis names and sizes without devices: a program over an AbstractMesh can be traced, checked and
// costed for any number of devices.
class AbstractMesh {
 public:
  AbstractMesh(Shape axis_sizes, Axes axis_names, SourceLine source = SourceLine::current());
  const std::vector<std::string>& axis_names() const { return env_->names; }
  // ValueError where the mesh has no axis of that name.
  int axis_size(std::string_view name, SourceLine source = SourceLine::current()) const;
  Shape axis_sizes() const { return Shape(env_->sizes); }
  std::int64_t size() const;
  friend bool operator==(const AbstractMesh& a, const AbstractMesh& b) { return a.env_ == b.env_; }
  friend std::ostream& operator<<(std::ostream& out, const AbstractMesh& mesh);
  const detail::AxisEnv* env() const { return env_; }

 private:
  const detail::AxisEnv* env_;
};

std::string to_string(const AbstractMesh& mesh);  // "AbstractMesh('i': 4, 'j': 2)"

class Mesh {
 public:
  // ValueError where the number of names is not the number of dims, a name is empty or given twice,
  // an axis has a size below 1, a device is given twice, or the devices are not all of one kind.
  Mesh(NdArray<Device> devices, Axes axis_names, SourceLine source = SourceLine::current());
  const std::vector<std::string>& axis_names() const;
  // ValueError where the mesh has no axis of that name.
  int axis_size(std::string_view name, SourceLine source = SourceLine::current()) const;
  Shape axis_sizes() const;
  std::int64_t size() const;
  const NdArray<Device>& devices() const;
  friend bool operator==(const Mesh& a, const Mesh& b) { return a.impl_ == b.impl_; }
  friend std::ostream& operator<<(std::ostream& out, const Mesh& mesh);

  explicit Mesh(const detail::MeshImpl* impl) : impl_(impl) {}
  const detail::MeshImpl* impl() const { return impl_; }

 private:
  const detail::MeshImpl* impl_;
};
std::string to_string(const Mesh& mesh);  // "Mesh('i': 4, 'j': 2)"

// A mesh of the first product(axis_sizes) entries of `devices`, in row-major order. Where `devices`
// is empty, the devices of all processes take its place, ordered so that those of one host follow
// each other. ValueError where there are too few devices, and where Mesh would throw it.
Mesh make_mesh(Shape axis_sizes, Axes axis_names, std::vector<Device> devices = {},
               SourceLine source = SourceLine::current());

// The mesh argument of shard_map: a Mesh or an AbstractMesh.
class AnyMesh {
 public:
  AnyMesh(const Mesh& mesh) : mesh_(mesh.impl()), env_(nullptr) {}
  AnyMesh(const AbstractMesh& mesh) : env_(mesh.env()) {}
  const detail::MeshImpl* mesh() const { return mesh_; }  // null for an AbstractMesh
  const detail::AxisEnv* env() const;

 private:
  const detail::MeshImpl* mesh_ = nullptr;
  const detail::AxisEnv* env_;
};

}  // namespace shmap
