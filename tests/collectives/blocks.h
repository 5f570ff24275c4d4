// Blocks of this process's devices, in and out of a body, as plain host data. A device is given by
// its position in the array's mesh.
#pragma once
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/node.h"
#include "core/runtime/host_transfer.h"
#include "shmap/shmap.h"
#include "tests/support/device_grids.h"
#include "tests/support/loop_reference.h"

namespace shmap::test {

// The positions of the devices that this process drives, in order: in a job of one process, all.
inline std::vector<std::uint32_t> own_positions(const Array& x) {
  const detail::MeshImpl& mesh = *stored_of(x)->mesh;
  std::vector<std::uint32_t> out;
  for (std::uint32_t k = 0; k < mesh.local_count(); ++k)
    out.push_back(static_cast<std::uint32_t>(mesh.global_position(k)));
  return out;
}
// The entry of the table of blocks that is the device's.
inline std::uint32_t entry_of(const Array& x, std::uint32_t device) {
  const std::vector<std::uint32_t> own = own_positions(x);
  for (std::uint32_t k = 0; k < own.size(); ++k)
    if (own[k] == device) return k;
  throw std::out_of_range("device " + std::to_string(device) + " is another process's");
}

// The elements of one device's block.
template <class T>
std::vector<T> block_values(const Array& x, std::uint32_t device) {
  const std::vector<std::byte> bytes = block_to_host(*stored_of(x), entry_of(x, device));
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// The buffer and offset that a device's entry names, to compare.
inline std::pair<const void*, std::int64_t> place(const Array& x, std::uint32_t device) {
  const Block& b = stored_of(x)->blocks()[entry_of(x, device)];
  return {b.buffer.get(), b.offset};
}
inline const MemorySpace* space_of(const Array& x, std::uint32_t device) {
  return stored_of(x)->mesh->local(entry_of(x, device)).space;
}

// A mesh under test; `names` are its axes.
struct TestMesh {
  std::vector<std::int64_t> sizes;
  std::vector<std::string> names;
  Mesh mesh() const { return mesh_in_all_processes(Shape(sizes), Axes(names)); }
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
