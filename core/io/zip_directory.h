// The directory of a zip archive. The bytes are not trusted: the result is a list of members whose
// bytes are in the file and do not overlap, or a ValueError that says what is wrong. Reads archives
// of one part, with and without 64-bit fields, whose members are stored or deflated.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shmap::io {

// Longer directories are ValueErrors, so that an archive takes no more memory than its size and 16
// MiB.
inline constexpr std::int64_t kZipMaxDirectory = std::int64_t{4} << 20;

struct ZipMember {
  std::string name;
  // offset of the contents in the file, and their inflated size
  std::int64_t offset = 0, bytes = 0;
  std::uint32_t crc = 0;  // CRC-32 of the contents
  bool deflated = false;
  std::int64_t packed = 0;  // bytes in the file; equal to `bytes` for a stored member
};

// Reads exactly `count` bytes of the file.
using ReadAt = std::function<void(std::int64_t offset, std::byte* dst, std::int64_t count)>;

// The members, sorted by name. ValueErrors, whose messages begin with `name`: not an archive, a
// name given twice, members that are encrypted or compressed in another way, that overlap, that
// claim to hold more than their bytes can, or whose own header contradicts the directory.
std::vector<ZipMember> read_zip_directory(const ReadAt& read, std::int64_t file_size,
                                          const std::string& name);

// The header before a stored member's contents, as Python's zipfile reads it. Names that are not
// ASCII are marked as UTF-8.
std::string make_zip_header(const ZipMember& member);
// The bytes that a member of that name takes in make_zip_directory's directory.
std::int64_t zip_entry_bytes(std::string_view name);
// The directory of an archive of stored members. `at`: the offset of each member's header; `end`:
// the offset of the directory.
std::string make_zip_directory(const std::vector<ZipMember>& members,
                               const std::vector<std::int64_t>& at, std::int64_t end);

}  // namespace shmap::io
