// .npy files as arrays.
#include <map>

#include "core/array/sharding.h"
#include "core/io/npy_file.h"
#include "core/ir/trace.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/host_transfer.h"
#include "shmap/io.h"

namespace shmap {

namespace {

std::vector<Slice> whole(const Shape& shape) {
  std::vector<Slice> box;
  for (std::int64_t e : shape) box.push_back({0, e});
  return box;
}

Array load(const io::NpyFile& file, const Sharding* sharding, bool committed) {
  ensure_started();
  const io::NpyHeader& header = file.header();
  const Shape block = sharding->block_shape(header.shape, "load_npy: \"" + file.path() + "\"");
  const std::int64_t bytes = checked_bytes(block, itemsize(header.dtype));
  const detail::MeshImpl* mesh = sharding->mesh();
  StoredNode* node = StoredNode::make(ShapedArray(header.shape, header.dtype, false, AxisSet()),
                                      mesh, mesh->local_count());
  Array out = Array::of(node);
  node->sharding = sharding;
  node->committed = committed;
  std::vector<std::byte> host(static_cast<std::size_t>(bytes));
  std::map<std::pair<int, std::vector<std::int64_t>>, std::uint32_t>
      read;  // what a memory space has already
  for (std::uint32_t p = 0; p < node->count; ++p) {
    const std::vector<Slice> box = sharding->index(p, header.shape);
    std::vector<std::int64_t> key;
    for (const Slice& s : box) key.push_back(s.start);
    const auto [it, fresh] = read.emplace(std::pair(mesh->local(p).space->id(), key), p);
    Block& b = node->blocks()[p];
    if (!fresh) {
      b = node->blocks()[it->second];
      continue;
    }
    b.buffer = mesh->local(p).space->allocate(bytes);
    if (bytes == 0) continue;
    file.read_box(box, host.data());
    device_ops(mesh->backend()).host_to_device(b.data(), host.data(), bytes);
  }
  return out;
}

}  // namespace

Array load_npy(const std::string& path, SourceLine source) {
  const io::NpyFile file(path);
  try {
    return load(file, detail::MeshImpl::default_device()->replicated(), false);
  } catch (const OutOfMemory& e) {
    rethrow_at(e, source);
  }
}

Array load_npy(const std::string& path, const NamedSharding& sharding, SourceLine source) {
  const io::NpyFile file(path);
  try {
    return load(file, sharding.mesh().impl()->sharding(sharding.spec()), true);
  } catch (const OutOfMemory& e) {
    rethrow_at(e, source);
  }
}

void save_npy(const std::string& path, const Array& x) {
  const Node& node = checked_node(x, "save_npy");
  io::NpyWriter writer(path, node.type.dtype(), node.type.dims());
  if (node.kind != NodeKind::stored || node.trace != 0) {
    const std::vector<std::byte> bytes = copy_to_host(x, "save_npy");
    writer.write_box(whole(node.type.dims()), bytes.data());
  } else {
    const auto& stored = static_cast<const StoredNode&>(node);
    if (!stored.mesh->fully_addressable()) {
      throw ValueError(
          "save_npy: parts of the array of type " + to_string(node.type) +
          " lie on devices of other processes: gather it with process_allgather(x) first");
    }
    std::map<std::vector<std::int64_t>, bool> written;
    for (std::uint32_t p = 0; p < stored.count; ++p) {
      const std::vector<Slice> box = stored.sharding->index(p, node.type.dims());
      std::vector<std::int64_t> key;
      for (const Slice& s : box) key.push_back(s.start);
      if (!written.emplace(std::move(key), true).second) continue;  // a replica
      const std::vector<std::byte> bytes = block_to_host(stored, p);
      writer.write_box(box, bytes.data());
    }
  }
  writer.commit();
}

}  // namespace shmap
