#include "core/io/array_blocks.h"

#include <map>
#include <set>

#include "core/io/npy_file.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/host_transfer.h"
#include "core/runtime/launch.h"

namespace shmap::io {

namespace {

// The size of staged pieces for memory that the host cannot address.
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
// The callback is called at least once per this many bytes.
constexpr std::int64_t kStepBytes = std::int64_t{16} << 20;

std::int64_t bytes_of(std::span<const Slice> box, int item) {
  std::int64_t n = item;
  for (const Slice& s : box) n *= s.stop - s.start;
  return n;
}

// Reads one block into a new buffer: directly where the host can address it, otherwise through a
// staging piece.
void read_block(const std::vector<Slice>& box, int item, Backend& backend, void* to,
                std::int64_t bytes, bool in_pieces, ProgressCount& progress, const ReadBox& read) {
  const bool direct = backend.host_addressable();
  if (direct && !(in_pieces && progress.wanted())) {
    read(box, to);
    return progress.add(bytes);
  }
  std::vector<std::byte> piece;
  const std::int64_t most = !in_pieces ? bytes : direct ? kStepBytes : kPieceBytes;
  for_each_piece(box, item, most, [&](std::span<const Slice> part, std::int64_t offset) {
    const std::int64_t n = bytes_of(part, item);
    std::byte* const dst = static_cast<std::byte*>(to) + offset;
    if (direct) {
      read(part, dst);
    } else {
      if (piece.empty()) piece.resize(static_cast<std::size_t>(n));  // the first is the largest
      read(part, piece.data());
      device_ops(backend).host_to_device(dst, piece.data(), n);
    }
    progress.add(n);
  });
}

void write_block(const std::vector<Slice>& box, int item, Backend& backend, const void* data,
                 ProgressCount& progress, const WriteBox& write) {
  const bool direct = backend.host_addressable();
  if (direct && !progress.wanted()) return write(box, data);
  std::vector<std::byte> piece;
  for_each_piece(box, item, direct ? kStepBytes : kPieceBytes,
                 [&](std::span<const Slice> part, std::int64_t offset) {
                   const std::int64_t n = bytes_of(part, item);
                   const std::byte* src = static_cast<const std::byte*>(data) + offset;
                   if (!direct) {
                     if (piece.empty()) piece.resize(static_cast<std::size_t>(n));
                     device_ops(backend).device_to_host(piece.data(), src, n);
                     src = piece.data();
                   }
                   write(part, src);
                   progress.add(n);
                 });
}

}  // namespace

std::vector<Slice> whole_box(const Shape& shape) {
  std::vector<Slice> box;
  for (std::int64_t e : shape) box.push_back({0, e});
  return box;
}

Array read_blocks(const ShapedArray& type, const Sharding* sharding, bool committed,
                  const std::string& what, bool in_pieces, ProgressCount& progress,
                  const ReadBox& read) {
  const Shape block = sharding->block_shape(type.dims(), what.c_str());
  const int item = itemsize(type.dtype());
  const std::int64_t bytes = checked_bytes(block, item);
  const detail::MeshImpl* mesh = sharding->mesh();
  StoredNode* node = StoredNode::make(ShapedArray(type.dims(), type.dtype(), false, AxisSet()),
                                      mesh, mesh->local_count());
  Array out = Array::of(node);
  node->sharding = sharding;
  node->committed = committed;
  // The blocks that each memory space already has; the key is the memory space and the block's
  // number.
  std::map<std::pair<int, std::vector<std::int64_t>>, std::uint32_t> have;
  for (std::uint32_t p = 0; p < node->count; ++p) {
    const std::vector<Slice> box = sharding->index(p, type.dims());
    std::vector<std::int64_t> key;
    for (const Slice& s : box) key.push_back(s.start);
    const auto [it, fresh] = have.emplace(std::pair(mesh->local(p).space->id(), key), p);
    Block& b = node->blocks()[p];
    if (!fresh) {
      b = node->blocks()[it->second];
      continue;
    }
    b.buffer = mesh->local(p).space->allocate(bytes);
    if (bytes != 0)
      read_block(box, item, mesh->backend(), b.data(), bytes, in_pieces, progress, read);
  }
  return out;
}

std::int64_t bytes_to_read(const ShapedArray& type, const Sharding* sharding) {
  const std::int64_t bytes =
      checked_bytes(sharding->block_shape(type.dims(), "a file"), itemsize(type.dtype()));
  std::set<std::pair<int, std::vector<std::int64_t>>> blocks;
  for (std::uint32_t p = 0; p < sharding->mesh()->local_count(); ++p) {
    std::vector<std::int64_t> key;
    for (const Slice& s : sharding->index(p, type.dims())) key.push_back(s.start);
    blocks.emplace(sharding->mesh()->local(p).space->id(), std::move(key));
  }
  return bytes * static_cast<std::int64_t>(blocks.size());
}

namespace {

// The local positions whose blocks this process writes, one for each different block. own: skips
// blocks that an earlier position in another process has.
std::vector<std::uint32_t> positions_to_write(const StoredNode& stored, bool own) {
  const detail::MeshImpl& mesh = *stored.mesh;
  const auto& dims = stored.sharding->dims();
  // The number of a position's block along each dim.
  const auto block_at = [&](std::int64_t position) {
    std::vector<std::int64_t> block;
    for (const std::vector<int>& axes : dims) {
      std::int64_t part = 0;
      for (int a : axes)
        part =
            part * mesh.env()->sizes[static_cast<std::size_t>(a)] + mesh.coordinate_at(position, a);
      block.push_back(part);
    }
    return block;
  };
  std::vector<std::uint32_t> out;
  std::set<std::vector<std::int64_t>> seen;
  std::uint32_t local = 0;
  for (std::int64_t g = 0; g < mesh.size(); ++g) {
    const bool here = local < mesh.local_count() && mesh.global_position(local) == g;
    if ((here || own) && seen.insert(block_at(g)).second && here) out.push_back(local);
    local += here;
  }
  return out;
}

void write_positions(const StoredNode& stored, bool own, ProgressCount& progress,
                     const WriteBox& write) {
  const int item = itemsize(stored.type.dtype());
  wait_for(stored);
  for (const std::uint32_t p : positions_to_write(stored, own)) {
    const std::vector<Slice> box = stored.sharding->index(p, stored.type.dims());
    if (bytes_of(box, item) == 0) continue;
    write_block(box, item, stored.mesh->backend(), stored.blocks()[p].data(), progress, write);
    if (stored.mesh->backend().host_addressable() && !progress.wanted())
      progress.add(bytes_of(box, item));
  }
}

}  // namespace

bool spans_processes(const Node& node) {
  return node.kind == NodeKind::stored && node.trace == 0 &&
         !static_cast<const StoredNode&>(node).mesh->fully_addressable();
}

void write_blocks(const Array& x, const char* what, ProgressCount& progress,
                  const WriteBox& write) {
  const Node& node = checked_node(x, what);
  detail::refuse_in_task(what);
  if (node.kind != NodeKind::stored || node.trace != 0) {
    const std::vector<std::byte> bytes = copy_to_host(x, what);
    write(whole_box(node.type.dims()), bytes.data());
    return progress.add(node.type.nbytes());
  }
  if (spans_processes(node)) {
    throw ValueError(
        std::string(what) + ": parts of the array of type " + to_string(node.type) +
        " lie on devices of other processes: gather it with process_allgather(x) first");
  }
  write_positions(static_cast<const StoredNode&>(node), /*own=*/false, progress, write);
}

void write_own_blocks(const Array& x, const char* what, ProgressCount& progress,
                      const WriteBox& write) {
  detail::refuse_in_task(what);
  write_positions(static_cast<const StoredNode&>(checked_node(x, what)), /*own=*/true, progress,
                  write);
}

std::int64_t own_bytes(const Array& x, const char* what) {
  const auto& stored = static_cast<const StoredNode&>(checked_node(x, what));
  const Shape block = stored.sharding->block_shape(stored.type.dims(), what);
  return checked_bytes(block, itemsize(stored.type.dtype())) *
         static_cast<std::int64_t>(positions_to_write(stored, true).size());
}

}  // namespace shmap::io
