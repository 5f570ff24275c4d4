// An independent reference for shard_map: plain host code that loops over mesh coordinates. Every
// device's block is a vector of int32 (arithmetic wraps), so results are exact and compared bit for
// bit.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace shmap::test {

using Extents = std::vector<std::int64_t>;

struct HostArray {
  Extents shape;
  std::vector<std::int32_t> values;  // row-major
  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }
};

std::int64_t product(const Extents& extents);
HostArray filled(const Extents& shape, const std::function<std::int32_t(std::int64_t)>& at);
// out[index] = in[from(index)]; `from` gives the flat index.
HostArray gathered(const HostArray& in, const Extents& shape,
                   const std::function<std::int64_t(const Extents&)>& from);
std::int64_t flat_index(const Extents& index, const Extents& shape);
HostArray sliced(const HostArray& in, const Extents& start, const Extents& extents);
HostArray concatenated(const std::vector<HostArray>& parts, std::size_t dim);
HostArray combined(
    const HostArray& a, const HostArray& b,
    const std::function<std::int32_t(std::int32_t, std::int32_t)>& op);  // a scalar broadcasts

// A mesh as numbers, and a value as one block a device (row-major over the mesh).
struct HostMesh {
  Extents sizes;
  std::int64_t devices() const { return product(sizes); }
  Extents coordinates(std::int64_t device) const;
  // The devices of `device`'s group over `axes`, in rank order (row-major over the axes in the
  // order given).
  std::vector<std::int64_t> group(std::int64_t device, const std::vector<int>& axes) const;
  std::int64_t rank(std::int64_t device, const std::vector<int>& axes) const;
};
using Blocks = std::vector<HostArray>;
using SpecDims = std::vector<std::vector<int>>;  // axes of each dim, major first

// What each device sees of an argument: slices by the spec, a tuple entry being a mixed radix,
// major first.
Blocks split_by_spec(const HostArray& x, const HostMesh& mesh, const SpecDims& spec);
// The global result: every device writes its block where the spec says; the last writer of a
// replica wins.
HostArray join_by_spec(const Blocks& blocks, const HostMesh& mesh, const SpecDims& spec);

}  // namespace shmap::test
