// Loading and saving .npz files.
#include <algorithm>
#include <memory>
#include <optional>

#include "core/base/crc.h"
#include "core/io/array_blocks.h"
#include "core/io/json_reader.h"
#include "core/io/npy_file.h"
#include "core/io/zip_contents.h"
#include "core/ir/node.h"
#include "core/runtime/host_transfer.h"
#include "core/runtime/launch.h"
#include "shmap/io.h"

namespace shmap {

namespace {

constexpr const char* kNpzFile = "npz file";
constexpr std::string_view kSuffix = ".npy";

// An array of the archive. Contents that are read whole, or are deflated, are checked against the
// CRC-32 while they are read.
class Member {
 public:
  Member(std::shared_ptr<const io::InputFile> file, const io::ReadAt& read,
         const io::ZipMember& zip, const Sharding* sharding, bool sharded)
      : file_(std::move(file)),
        read_(read),
        zip_(zip),
        of_(file_->name() + ": member " + io::quoted_bytes(zip.name)),
        name_(name_of(zip, of_)),
        sharding_(sharding),
        sharded_(sharded) {
    std::vector<std::byte> prefix(
        static_cast<std::size_t>(std::min(zip_.bytes, io::kNpyMaxPrefix)));
    io::ZipContents(read_, zip_, of_).read(prefix.data(), static_cast<std::int64_t>(prefix.size()));
    header_ = io::parse_npy_header(prefix, zip_.bytes, of_);
    sharding_->block_shape(header_.shape, what());  // throws an error that names the array
  }

  // The array's name: the member's without ".npy".
  static std::string name_of(const io::ZipMember& zip, const std::string& of) {
    if (!std::string_view(zip.name).ends_with(kSuffix))
      throw ValueError(of + " is not an array: its name must end with .npy");
    return zip.name.substr(0, zip.name.size() - kSuffix.size());
  }
  const std::string& name() const { return name_; }
  std::int64_t bytes_to_read() const { return io::bytes_to_read(type(), sharding_); }

  Array load(io::ProgressCount& progress) const {
    if (!sharded_ && io::has_rows(header_)) {
      // Reads the contents once, from begin to end, directly into the array.
      io::ZipContents contents(read_, zip_, of_);
      contents.skip(header_.data_offset);
      Array x = load(progress, true, [&](std::span<const Slice> box, void* dst) {
        std::int64_t count = 1;
        for (const Slice& s : box) count *= s.stop - s.start;
        contents.read(static_cast<std::byte*>(dst), count * itemsize(header_.dtype));
        io::take_elements(header_, dst, count);
      });
      contents.finish();
      return x;
    }
    std::optional<io::NpyFile> npy;
    if (zip_.deflated) {
      // Boxes are read in any order, so that the contents are inflated into memory first.
      npy.emplace(std::make_shared<const io::InputFile>(
                      of_, io::ZipContents(read_, zip_, of_).read_all(), zip_.bytes),
                  0, zip_.bytes, of_);
    } else {
      if (!sharded_) {
        io::ZipContents contents(read_, zip_, of_);
        contents.skip(zip_.bytes);
        contents.finish();
      }
      npy.emplace(file_, zip_.offset, zip_.bytes, of_);
    }
    return load(progress, npy->reads_rows(),
                [&](std::span<const Slice> box, void* dst) { npy->read_box(box, dst); });
  }

 private:
  ShapedArray type() const { return {header_.shape, header_.dtype, false, AxisSet()}; }
  std::string what() const { return "load_npz: array '" + name_ + "'"; }
  Array load(io::ProgressCount& progress, bool in_pieces, const io::ReadBox& read) const {
    return io::read_blocks(type(), sharding_, sharded_, what(), in_pieces, progress, read);
  }

  std::shared_ptr<const io::InputFile> file_;
  const io::ReadAt& read_;
  const io::ZipMember& zip_;
  std::string of_, name_;
  io::NpyHeader header_;
  const Sharding* sharding_;
  bool sharded_;
};

}  // namespace

std::map<std::string, Array> load_npz(const std::string& path,
                                      const std::map<std::string, NamedSharding>& shardings,
                                      FileOptions options, SourceLine source) {
  return io::with_line("load_npz", path, source, [&] {
    ensure_started();
    const auto file = std::make_shared<const io::InputFile>(kNpzFile, path);
    const io::ReadAt read = [&](std::int64_t at, std::byte* dst, std::int64_t n) {
      file->read(at, dst, n);
    };
    const std::vector<io::ZipMember> zip = io::read_zip_directory(read, file->size(), file->name());
    std::vector<Member> members;
    std::int64_t total = 0;
    for (const io::ZipMember& m : zip) {
      const std::string name =
          Member::name_of(m, file->name() + ": member " + io::quoted_bytes(m.name));
      const auto it = shardings.find(name);
      const bool sharded = it != shardings.end();
      members.emplace_back(file, read, m,
                           sharded ? it->second.mesh().impl()->sharding(it->second.spec())
                                   : detail::MeshImpl::default_device()->replicated(),
                           sharded);
      total += members.back().bytes_to_read();
    }
    for (const auto& [name, sharding] : shardings) {
      const bool found = std::any_of(members.begin(), members.end(),
                                     [&, &n = name](const Member& m) { return m.name() == n; });
      if (!found) {
        throw ValueError(file->name() + ": it has no array '" + name +
                         "', for which a sharding is given");
      }
    }
    io::ProgressCount progress(options, total);
    std::map<std::string, Array> out;
    for (const Member& m : members) out[m.name()] = m.load(progress);
    return out;
  });
}

void save_npz(const std::string& path, const std::map<std::string, Array>& arrays,
              FileOptions options, SourceLine source) {
  io::with_line("save_npz", path, source, [&] {
    std::int64_t total = 0, directory_bytes = 0;
    for (const auto& [name, x] : arrays) {
      total += checked_node(x, "save_npz").type.nbytes();
      if (!io::is_utf8(name) || name.size() > 60000 || name.find('\0') != name.npos) {
        throw ValueError(io::named_file(kNpzFile, path) + ": an array's name is " +
                         io::quoted_bytes(name) +
                         ": wanted UTF-8 of at most 60000 bytes without null characters");
      }
      directory_bytes += io::zip_entry_bytes(name) + std::ssize(kSuffix);
      x.block_until_ready(source);
    }
    if (directory_bytes > io::kZipMaxDirectory) {
      throw ValueError(io::named_file(kNpzFile, path) + ": the directory of its " +
                       std::to_string(arrays.size()) + " arrays would have " +
                       std::to_string(directory_bytes) + " bytes, and load_npz reads " +
                       std::to_string(io::kZipMaxDirectory) +
                       ": save fewer arrays, or under shorter names");
    }
    io::ProgressCount progress(options, total);
    io::OutputFile file(kNpzFile, path);
    std::vector<io::ZipMember> members;
    std::vector<std::int64_t> places;
    std::int64_t at = 0;
    for (const auto& [name, x] : arrays) {
      const ShapedArray type = checked_node(x, "save_npz").type;
      const std::string npy = io::make_npy_header(type.dtype(), type.dims());
      io::ZipMember m;
      m.name = name + std::string(kSuffix);
      m.bytes = static_cast<std::int64_t>(npy.size()) + type.nbytes();
      m.crc = crc32(npy.data(), npy.size());
      places.push_back(at);
      m.offset = at + static_cast<std::int64_t>(io::make_zip_header(m).size());
      const std::int64_t data = m.offset + static_cast<std::int64_t>(npy.size());
      // The checksum needs the bytes in order, so that a split array is gathered on the host first.
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
