#include "tests/support/loop_reference.h"

#include <algorithm>

namespace shmap::test {

std::int64_t product(const Extents& extents) {
  std::int64_t n = 1;
  for (std::int64_t e : extents) n *= e;
  return n;
}

std::int64_t flat_index(const Extents& index, const Extents& shape) {
  std::int64_t flat = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

Extents unflatten(std::int64_t flat, const Extents& shape) {
  Extents index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
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

std::int64_t HostMesh::chunk(std::int64_t device, const SpecDims& spec, std::size_t dim) const {
  const Extents at = coordinates(device);
  std::int64_t c = 0;
  if (dim < spec.size())
    for (int a : spec[dim])
      c = c * sizes[static_cast<std::size_t>(a)] + at[static_cast<std::size_t>(a)];
  return c;
}

std::int64_t HostMesh::parts(const SpecDims& spec, std::size_t dim) const {
  std::int64_t n = 1;
  if (dim < spec.size())
    for (int a : spec[dim]) n *= sizes[static_cast<std::size_t>(a)];
  return n;
}

}  // namespace shmap::test
