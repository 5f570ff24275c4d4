// .npy files as arrays.
#include <map>
#include <new>
#include <set>

#include "core/array/sharding.h"
#include "core/io/npy_file.h"
#include "core/ir/trace.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/host_transfer.h"
#include "core/runtime/launch.h"
#include "shmap/io.h"

namespace shmap {

namespace {

std::vector<Slice> whole(const Shape& shape) {
  std::vector<Slice> box;
  for (std::int64_t e : shape) box.push_back({0, e});
  return box;
}

// Of memory that the host cannot address, at a time.
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

// The errors of reading or writing that file, with the caller's line.
template <class F>
auto with_line(const char* what, const std::string& path, SourceLine source, F f) -> decltype(f()) {
  const auto text = [&](const Error& e) {
    const std::string given = e.what();
    return given.find("\n  at ") != given.npos ? given : given + at_line(source);
  };
  const auto where = [&] { return "\n  in " + std::string(what) + " of '" + path + "'"; };
  try {
    return f();
  } catch (const ValueError& e) {
    throw ValueError(text(e));
  } catch (const TypeError& e) {
    throw TypeError(text(e));
  } catch (const DeviceError& e) {
    throw DeviceError(text(e));
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(text(OutOfMemory(e.what() + where())));
  } catch (const CollectiveError& e) {
    throw CollectiveError(text(e));
  } catch (const Error& e) {
    throw Error(text(e));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("out of memory on the host" + where() + at_line(source));
  }
}

// One block of the file, to a buffer that nobody else knows yet: straight to where it will stay
// where the host can address that, else in pieces.
void read_block(const io::NpyFile& file, const std::vector<Slice>& box, Backend& backend, void* to,
                std::int64_t bytes) {
  if (backend.host_addressable()) return file.read_box(box, to);
  std::vector<std::byte> piece;
  io::for_each_piece(box, itemsize(file.header().dtype), file.reads_rows() ? kPieceBytes : bytes,
                     [&](std::span<const Slice> part, std::int64_t offset) {
                       std::int64_t n = itemsize(file.header().dtype);
                       for (const Slice& s : part) n *= s.stop - s.start;
                       if (piece.empty())
                         piece.resize(static_cast<std::size_t>(n));  // the first is the largest
                       file.read_box(part, piece.data());
                       device_ops(backend).host_to_device(static_cast<std::byte*>(to) + offset,
                                                          piece.data(), n);
                     });
}

Array load(const io::NpyFile& file, const Sharding* sharding, bool committed) {
  const io::NpyHeader& header = file.header();
  const Shape block = sharding->block_shape(header.shape, "load_npy: \"" + file.path() + "\"");
  const std::int64_t bytes = checked_bytes(block, itemsize(header.dtype));
  const detail::MeshImpl* mesh = sharding->mesh();
  StoredNode* node = StoredNode::make(ShapedArray(header.shape, header.dtype, false, AxisSet()),
                                      mesh, mesh->local_count());
  Array out = Array::of(node);
  node->sharding = sharding;
  node->committed = committed;
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
    if (bytes != 0) read_block(file, box, mesh->backend(), b.data(), bytes);
  }
  return out;
}

// A stored block of the file's, from where it is.
void write_block(io::NpyWriter& writer, const std::vector<Slice>& box, const StoredNode& node,
                 const Block& block) {
  Backend& backend = node.mesh->backend();
  if (backend.host_addressable()) return writer.write_box(box, block.data());
  std::vector<std::byte> piece;
  const int item = itemsize(node.type.dtype());
  io::for_each_piece(box, item, kPieceBytes, [&](std::span<const Slice> part, std::int64_t offset) {
    std::int64_t n = item;
    for (const Slice& s : part) n *= s.stop - s.start;
    if (piece.empty()) piece.resize(static_cast<std::size_t>(n));
    device_ops(backend).device_to_host(piece.data(),
                                       static_cast<const std::byte*>(block.data()) + offset, n);
    writer.write_box(part, piece.data());
  });
}

void save(const std::string& path, const Array& x) {
  const Node& node = checked_node(x, "save_npy");
  detail::refuse_in_task("save_npy");
  if (node.kind != NodeKind::stored || node.trace != 0) {
    const std::vector<std::byte> bytes = copy_to_host(x, "save_npy");
    io::NpyWriter writer(path, node.type.dtype(), node.type.dims());
    writer.write_box(whole(node.type.dims()), bytes.data());
    return writer.commit();
  }
  const auto& stored = static_cast<const StoredNode&>(node);
  if (!stored.mesh->fully_addressable()) {
    throw ValueError(
        "save_npy: parts of the array of type " + to_string(node.type) +
        " lie on devices of other processes: gather it with process_allgather(x) first");
  }
  wait_for(stored);
  io::NpyWriter writer(path, node.type.dtype(), node.type.dims());
  std::set<std::vector<std::int64_t>> written;
  for (std::uint32_t p = 0; p < stored.count; ++p) {
    const std::vector<Slice> box = stored.sharding->index(p, node.type.dims());
    std::vector<std::int64_t> key;
    for (const Slice& s : box) key.push_back(s.start);
    if (!written.insert(std::move(key)).second) continue;  // a replica
    write_block(writer, box, stored, stored.blocks()[p]);
  }
  writer.commit();
}

}  // namespace

Array load_npy(const std::string& path, SourceLine source) {
  return with_line("load_npy", path, source, [&] {
    ensure_started();
    return load(io::NpyFile(path), detail::MeshImpl::default_device()->replicated(), false);
  });
}

Array load_npy(const std::string& path, const NamedSharding& sharding, SourceLine source) {
  return with_line("load_npy", path, source, [&] {
    ensure_started();
    return load(io::NpyFile(path), sharding.mesh().impl()->sharding(sharding.spec()), true);
  });
}

void save_npy(const std::string& path, const Array& x, SourceLine source) {
  with_line("save_npy", path, source, [&] { save(path, x); });
}

}  // namespace shmap
