// Blocks of all devices, in and out of a body, as plain host data.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/node.h"
#include "core/runtime/host_transfer.h"
#include "shmap/shmap.h"
#include "tests/support/loop_reference.h"

namespace shmap::test {

// The elements of one device's block.
template <class T>
std::vector<T> block_values(const Array& x, std::uint32_t device) {
  const std::vector<std::byte> bytes = block_to_host(*stored_of(x), device);
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

inline Blocks host_blocks(const Array& x) {
  Blocks out;
  const Shape shape = x.shape();
  for (std::uint32_t d = 0; d < stored_of(x)->count; ++d)
    out.push_back({Extents(shape.begin(), shape.end()), block_values<std::int32_t>(x, d)});
  return out;
}

// The buffer and offset that a device's entry names, to compare.
inline std::pair<const void*, std::int64_t> place(const Array& x, std::uint32_t device) {
  const Block& b = stored_of(x)->blocks()[device];
  return {b.buffer.get(), b.offset};
}
inline const MemorySpace* space_of(const Array& x, std::uint32_t device) {
  return stored_of(x)->mesh->local(device).space;
}

// A mesh under test; `names` are its axes.
struct TestMesh {
  std::vector<std::int64_t> sizes;
  std::vector<std::string> names;
  Mesh mesh() const { return make_mesh(Shape(sizes), Axes(names)); }
  HostMesh host() const { return {sizes}; }
  // Dim 0 split over all axes: a block of its own for each device.
  P split() const { return P(std::vector<P::Entry>{P::Entry(Axes(names))}); }
  Axes axes(const std::vector<int>& which) const {
    std::vector<std::string> out;
    for (int a : which) out.push_back(names[static_cast<std::size_t>(a)]);
    return Axes(out);
  }
};

// A global array of which device d has block blocks[d]; of rank 1 and more.
inline Array global_array(const Blocks& blocks) {
  const HostArray all = concatenated(blocks, 0);
  return array<std::int32_t>(all.values, Shape(all.shape));
}

}  // namespace shmap::test
