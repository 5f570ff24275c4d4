// .npz files as arrays.
#include <algorithm>
#include <memory>

#include "core/base/crc.h"
#include "core/io/array_blocks.h"
#include "core/io/json_reader.h"
#include "core/io/npy_file.h"
#include "core/io/zip_directory.h"
#include "core/ir/node.h"
#include "core/runtime/host_transfer.h"
#include "core/runtime/launch.h"
#include "shmap/io.h"

namespace shmap {

namespace {

constexpr const char* kKind = "npz file";
constexpr std::string_view kSuffix = ".npy";

// The whole member against its CRC-32. Takes 1 MiB.
void check_crc(const io::InputFile& file, const io::ZipMember& member) {
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::int64_t>(member.bytes, std::int64_t{1} << 20)));
  std::uint32_t crc = 0;
  for (std::int64_t at = 0; at < member.bytes;) {
    const std::int64_t n = std::min(member.bytes - at, static_cast<std::int64_t>(piece.size()));
    file.read(member.offset + at, piece.data(), n);
    crc = crc32(piece.data(), static_cast<std::size_t>(n), crc);
    at += n;
  }
  if (crc == member.crc) return;
  throw ValueError(file.name() + ": it is damaged: member " + io::quoted_bytes(member.name) +
                   " is not what was written (CRC-32)");
}

struct Member {
  std::string name;  // without ".npy"
  const io::ZipMember* zip;
  io::NpyFile npy;
  const Sharding* sharding;
};

}  // namespace

std::map<std::string, Array> load_npz(const std::string& path,
                                      const std::map<std::string, NamedSharding>& shardings,
                                      FileOptions options, SourceLine source) {
  return io::with_line("load_npz", path, source, [&] {
    ensure_started();
    const auto file = std::make_shared<const io::InputFile>(kKind, path);
    const std::vector<io::ZipMember> zip = io::read_zip_directory(
        [&](std::int64_t at, std::byte* dst, std::int64_t n) { file->read(at, dst, n); },
        file->size(), file->name());
    std::vector<Member> members;
    std::int64_t total = 0;
    for (const io::ZipMember& m : zip) {
      const std::string of = file->name() + ": member " + io::quoted_bytes(m.name);
      if (!std::string_view(m.name).ends_with(kSuffix))
        throw ValueError(of + " is no array: wanted is a name that ends with .npy");
      const std::string name = m.name.substr(0, m.name.size() - kSuffix.size());
      const auto it = shardings.find(name);
      members.push_back({name, &m, io::NpyFile(file, m.offset, m.bytes, of),
                         it == shardings.end()
                             ? detail::MeshImpl::default_device()->replicated()
                             : it->second.mesh().impl()->sharding(it->second.spec())});
      const io::NpyHeader& header = members.back().npy.header();
      const ShapedArray type(header.shape, header.dtype, false, AxisSet());
      members.back().sharding->block_shape(header.shape, "load_npz: array '" + name + "'");
      total += io::bytes_to_read(type, members.back().sharding);
    }
    for (const auto& [name, sharding] : shardings) {
      const bool found = std::any_of(members.begin(), members.end(),
                                     [&, &n = name](const Member& m) { return m.name == n; });
      if (!found) {
        throw ValueError(file->name() + ": it has no array '" + name +
                         "', for which a sharding is given");
      }
    }
    io::ProgressCount progress(options, total);
    std::map<std::string, Array> out;
    for (const Member& m : members) {
      const bool sharded = shardings.count(m.name) > 0;
      if (!sharded) check_crc(*file, *m.zip);
      const io::NpyHeader& header = m.npy.header();
      out[m.name] =
          io::read_blocks(ShapedArray(header.shape, header.dtype, false, AxisSet()), m.sharding,
                          sharded, "load_npz: array '" + m.name + "'", m.npy.reads_rows(), progress,
                          [&](std::span<const Slice> box, void* dst) { m.npy.read_box(box, dst); });
    }
    return out;
  });
}

void save_npz(const std::string& path, const std::map<std::string, Array>& arrays,
              FileOptions options, SourceLine source) {
  io::with_line("save_npz", path, source, [&] {
    std::int64_t total = 0;
    for (const auto& [name, x] : arrays) {
      total += checked_node(x, "save_npz").type.nbytes();
      if (!io::is_utf8(name) || name.size() > 60000 || name.find('\0') != name.npos) {
        throw ValueError(io::named_file(kKind, path) + ": an array's name is " +
                         io::quoted_bytes(name) +
                         ": wanted is UTF-8 of at most 60000 bytes without null characters");
      }
      x.block_until_ready(source);
    }
    io::ProgressCount progress(options, total);
    io::OutputFile file(kKind, path);
    std::vector<io::ZipMember> members;
    std::vector<std::int64_t> places;
    std::int64_t at = 0;
    for (const auto& [name, x] : arrays) {
      const ShapedArray type = checked_node(x, "save_npz").type;
      const std::string npy = io::make_npy_header(type.dtype(), type.dims());
      io::ZipMember m{name + std::string(kSuffix), 0, 0, 0};
      m.bytes = static_cast<std::int64_t>(npy.size()) + type.nbytes();
      m.crc = crc32(npy.data(), npy.size());
      places.push_back(at);
      m.offset = at + static_cast<std::int64_t>(io::make_zip_header(m).size());
      const std::int64_t data = m.offset + static_cast<std::int64_t>(npy.size());
      // In order, for the checksum: a split array is put together first.
      std::int64_t done = 0;
      const auto append = [&](std::span<const Slice> box, const void* src) {
        std::int64_t n = itemsize(type.dtype());
        for (const Slice& s : box) n *= s.stop - s.start;
        m.crc = crc32(src, static_cast<std::size_t>(n), m.crc);
        file.write(data + done, src, n);
        done += n;
      };
      const Node& node = checked_node(x, "save_npz");
      const bool whole = node.kind == NodeKind::stored && node.trace == 0 &&
                         static_cast<const StoredNode&>(node).sharding->is_replicated();
      if (whole) {
        io::write_blocks(x, "save_npz", progress, append);
      } else {
        detail::refuse_in_task("save_npz");
        const std::vector<std::byte> bytes = copy_to_host(x, "save_npz");
        if (!bytes.empty()) append(io::whole_box(type.dims()), bytes.data());
        progress.add(type.nbytes());
      }
      file.write(m.offset, npy.data(), static_cast<std::int64_t>(npy.size()));
      const std::string header = io::make_zip_header(m);
      file.write(at, header.data(), static_cast<std::int64_t>(header.size()));
      at = m.offset + m.bytes;
      members.push_back(std::move(m));
    }
    const std::string directory = io::make_zip_directory(members, places, at);
    file.write(at, directory.data(), static_cast<std::int64_t>(directory.size()));
    file.commit();
  });
}

}  // namespace shmap
