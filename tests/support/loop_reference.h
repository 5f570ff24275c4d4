// An independent reference for shard_map: plain host code that loops over mesh coordinates. Every
// device's block is a vector of elements: of int32 (arithmetic wraps), so that results are exact
// and compared bit for bit, or of numbers with derivatives (tests/support/jet.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shmap::test {

using Extents = std::vector<std::int64_t>;

std::int64_t product(const Extents& extents);
std::int64_t flat_index(const Extents& index, const Extents& shape);
Extents unflatten(std::int64_t flat, const Extents& shape);

template <class T>
struct HostTensor {
  Extents shape;
  std::vector<T> values;  // row-major
  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }
};
using HostArray = HostTensor<std::int32_t>;

template <class T = std::int32_t, class F>
HostTensor<T> filled(const Extents& shape, F at) {
  HostTensor<T> out{shape, {}};
  for (std::int64_t i = 0; i < product(shape); ++i) out.values.push_back(at(i));
  return out;
}

// out[index] = in[from(index)]; `from` gives the flat index.
template <class T, class F>
HostTensor<T> gathered(const HostTensor<T>& in, const Extents& shape, F from) {
  return filled<T>(shape, [&](std::int64_t i) {
    return in.values[static_cast<std::size_t>(from(unflatten(i, shape)))];
  });
}

template <class T>
HostTensor<T> sliced(const HostTensor<T>& in, const Extents& start, const Extents& extents) {
  return gathered(in, extents, [&](const Extents& index) {
    Extents at = index;
    for (std::size_t d = 0; d < at.size(); ++d) at[d] += start[d];
    return flat_index(at, in.shape);
  });
}

template <class T>
HostTensor<T> concatenated(const std::vector<HostTensor<T>>& parts, std::size_t dim) {
  Extents shape = parts.front().shape;
  shape[dim] = 0;
  for (const HostTensor<T>& p : parts) shape[dim] += p.shape[dim];
  HostTensor<T> out{shape, std::vector<T>(static_cast<std::size_t>(product(shape)))};
  std::int64_t offset = 0;
  for (const HostTensor<T>& p : parts) {
    for (std::int64_t i = 0; i < p.size(); ++i) {
      Extents index = unflatten(i, p.shape);
      index[dim] += offset;
      out.values[static_cast<std::size_t>(flat_index(index, shape))] =
          p.values[static_cast<std::size_t>(i)];
    }
    offset += p.shape[dim];
  }
  return out;
}

// A scalar broadcasts.
template <class T, class F>
HostTensor<T> combined(const HostTensor<T>& a, const HostTensor<T>& b, F op) {
  const HostTensor<T>& wide = a.shape.empty() ? b : a;
  return filled<T>(wide.shape, [&](std::int64_t i) {
    const auto of = [&](const HostTensor<T>& x) {
      return x.values[static_cast<std::size_t>(x.shape.empty() ? 0 : i)];
    };
    return op(of(a), of(b));
  });
}

using SpecDims = std::vector<std::vector<int>>;  // axes of each dim, major first

// A mesh as numbers, and a value as one block a device (row-major over the mesh).
struct HostMesh {
  Extents sizes;
  std::int64_t devices() const { return product(sizes); }
  Extents coordinates(std::int64_t device) const;
  // The devices of `device`'s group over `axes`, in rank order (row-major over the axes in the
  // order given).
  std::vector<std::int64_t> group(std::int64_t device, const std::vector<int>& axes) const;
  std::int64_t rank(std::int64_t device, const std::vector<int>& axes) const;
  // The number of a device's chunk of a dim, and the number of chunks of the dim.
  std::int64_t chunk(std::int64_t device, const SpecDims& spec, std::size_t dim) const;
  std::int64_t parts(const SpecDims& spec, std::size_t dim) const;
};
template <class T>
using BlocksOf = std::vector<HostTensor<T>>;
using Blocks = BlocksOf<std::int32_t>;

// The block of an argument on each device: slices by the spec, where a tuple entry is a mixed-radix
// number, major axis first.
template <class T>
BlocksOf<T> split_by_spec(const HostTensor<T>& x, const HostMesh& mesh, const SpecDims& spec) {
  BlocksOf<T> blocks;
  for (std::int64_t device = 0; device < mesh.devices(); ++device) {
    Extents start, extents;
    for (std::size_t d = 0; d < x.shape.size(); ++d) {
      extents.push_back(x.shape[d] / mesh.parts(spec, d));
      start.push_back(mesh.chunk(device, spec, d) * extents.back());
    }
    blocks.push_back(sliced(x, start, extents));
  }
  return blocks;
}

// The global result: every device writes its block where the spec says; the last writer of a
// replica wins.
template <class T>
HostTensor<T> join_by_spec(const BlocksOf<T>& blocks, const HostMesh& mesh, const SpecDims& spec) {
  Extents shape = blocks.front().shape;
  for (std::size_t d = 0; d < shape.size(); ++d) shape[d] *= mesh.parts(spec, d);
  HostTensor<T> out{shape, std::vector<T>(static_cast<std::size_t>(product(shape)))};
  for (std::int64_t device = 0; device < mesh.devices(); ++device) {
    const HostTensor<T>& block = blocks[static_cast<std::size_t>(device)];
    for (std::int64_t i = 0; i < block.size(); ++i) {
      Extents index = unflatten(i, block.shape);
      for (std::size_t d = 0; d < index.size(); ++d)
        index[d] += mesh.chunk(device, spec, d) * block.shape[d];
      out.values[static_cast<std::size_t>(flat_index(index, shape))] =
          block.values[static_cast<std::size_t>(i)];
    }
  }
  return out;
}

}  // namespace shmap::test
