#include "tests/support/loop_reference.h"

#include <algorithm>

namespace shmap::test {

std::int64_t product(const Extents& extents) {
  std::int64_t n = 1;
  for (std::int64_t e : extents) n *= e;
  return n;
}

HostArray filled(const Extents& shape, const std::function<std::int32_t(std::int64_t)>& at) {
  HostArray out{shape, {}};
  for (std::int64_t i = 0; i < product(shape); ++i) out.values.push_back(at(i));
  return out;
}

std::int64_t flat_index(const Extents& index, const Extents& shape) {
  std::int64_t flat = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

namespace {
Extents unflatten(std::int64_t flat, const Extents& shape) {
  Extents index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}
}  // namespace

HostArray gathered(const HostArray& in, const Extents& shape,
                   const std::function<std::int64_t(const Extents&)>& from) {
  return filled(shape, [&](std::int64_t i) {
    return in.values[static_cast<std::size_t>(from(unflatten(i, shape)))];
  });
}

HostArray sliced(const HostArray& in, const Extents& start, const Extents& extents) {
  return gathered(in, extents, [&](const Extents& index) {
    Extents at = index;
    for (std::size_t d = 0; d < at.size(); ++d) at[d] += start[d];
    return flat_index(at, in.shape);
  });
}

HostArray concatenated(const std::vector<HostArray>& parts, std::size_t dim) {
  Extents shape = parts.front().shape;
  shape[dim] = 0;
  for (const HostArray& p : parts) shape[dim] += p.shape[dim];
  HostArray out{shape, std::vector<std::int32_t>(static_cast<std::size_t>(product(shape)))};
  std::int64_t offset = 0;
  for (const HostArray& p : parts) {
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

HostArray combined(const HostArray& a, const HostArray& b,
                   const std::function<std::int32_t(std::int32_t, std::int32_t)>& op) {
  const HostArray& wide = a.shape.empty() ? b : a;
  return filled(wide.shape, [&](std::int64_t i) {
    const auto of = [&](const HostArray& x) {
      return x.values[static_cast<std::size_t>(x.shape.empty() ? 0 : i)];
    };
    return op(of(a), of(b));
  });
}

Extents HostMesh::coordinates(std::int64_t device) const { return unflatten(device, sizes); }

std::int64_t HostMesh::rank(std::int64_t device, const std::vector<int>& axes) const {
  const Extents at = coordinates(device);
  std::int64_t r = 0;
  for (int a : axes) r = r * sizes[static_cast<std::size_t>(a)] + at[static_cast<std::size_t>(a)];
  return r;
}

std::vector<std::int64_t> HostMesh::group(std::int64_t device, const std::vector<int>& axes) const {
  const Extents mine = coordinates(device);
  std::vector<std::pair<std::int64_t, std::int64_t>> members;  // rank, device
  for (std::int64_t d = 0; d < devices(); ++d) {
    const Extents other = coordinates(d);
    bool same = true;
    for (std::size_t a = 0; a < sizes.size(); ++a)
      if (std::find(axes.begin(), axes.end(), static_cast<int>(a)) == axes.end())
        same &= other[a] == mine[a];
    if (same) members.emplace_back(rank(d, axes), d);
  }
  std::sort(members.begin(), members.end());
  std::vector<std::int64_t> out;
  for (const auto& m : members) out.push_back(m.second);
  return out;
}

namespace {
std::int64_t chunk(const Extents& at, const HostMesh& mesh, const SpecDims& spec, std::size_t dim) {
  std::int64_t c = 0;
  if (dim < spec.size())
    for (int a : spec[dim])
      c = c * mesh.sizes[static_cast<std::size_t>(a)] + at[static_cast<std::size_t>(a)];
  return c;
}
std::int64_t parts(const HostMesh& mesh, const SpecDims& spec, std::size_t dim) {
  std::int64_t n = 1;
  if (dim < spec.size())
    for (int a : spec[dim]) n *= mesh.sizes[static_cast<std::size_t>(a)];
  return n;
}
}  // namespace

Blocks split_by_spec(const HostArray& x, const HostMesh& mesh, const SpecDims& spec) {
  Blocks blocks;
  for (std::int64_t device = 0; device < mesh.devices(); ++device) {
    const Extents at = mesh.coordinates(device);
    Extents start, extents;
    for (std::size_t d = 0; d < x.shape.size(); ++d) {
      extents.push_back(x.shape[d] / parts(mesh, spec, d));
      start.push_back(chunk(at, mesh, spec, d) * extents.back());
    }
    blocks.push_back(sliced(x, start, extents));
  }
  return blocks;
}

HostArray join_by_spec(const Blocks& blocks, const HostMesh& mesh, const SpecDims& spec) {
  Extents shape = blocks.front().shape;
  for (std::size_t d = 0; d < shape.size(); ++d) shape[d] *= parts(mesh, spec, d);
  HostArray out{shape, std::vector<std::int32_t>(static_cast<std::size_t>(product(shape)))};
  for (std::int64_t device = 0; device < mesh.devices(); ++device) {
    const Extents at = mesh.coordinates(device);
    const HostArray& block = blocks[static_cast<std::size_t>(device)];
    for (std::int64_t i = 0; i < block.size(); ++i) {
      Extents index = unflatten(i, block.shape);
      for (std::size_t d = 0; d < index.size(); ++d)
        index[d] += chunk(at, mesh, spec, d) * block.shape[d];
      out.values[static_cast<std::size_t>(flat_index(index, shape))] =
          block.values[static_cast<std::size_t>(i)];
    }
  }
  return out;
}

}  // namespace shmap::test
