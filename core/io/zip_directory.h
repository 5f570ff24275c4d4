// The directory of a zip archive, from bytes that nobody vouches for: whatever they are, the result
// is a list of members whose bytes lie in the file, apart from one another, or a ValueError that
// says what is wrong. Archives of one part, with and without the 64-bit fields; members that are
// stored or deflated.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shmap::io {

// Longer directories are refused, so that an archive takes no more memory than its size and 16 MiB.
inline constexpr std::int64_t kZipMaxDirectory = std::int64_t{4} << 20;

struct ZipMember {
  std::string name;
  std::int64_t offset = 0, bytes = 0;  // of its contents: where they are in the file, how many
  std::uint32_t crc = 0;               // CRC-32 of them
  bool deflated = false;
  std::int64_t packed = 0;  // bytes in the file; those of the contents where it is not deflated
};

// Gives bytes of the file, exactly so many.
using ReadAt = std::function<void(std::int64_t offset, std::byte* dst, std::int64_t count)>;

// The members, by name. ValueError, its message begun by `name`: no archive, names given twice,
// members that are compressed in another way or encrypted, that overlap, that say that they hold
// more than their bytes can, or whose own header says otherwise.
std::vector<ZipMember> read_zip_directory(const ReadAt& read, std::int64_t file_size,
                                          const std::string& name);

// What stands in front of a stored member's contents, and at the end of an archive of such, as
// Python's zipfile reads it. A name that is no ASCII is marked as UTF-8.
std::string make_zip_header(const ZipMember& member);
// `at`: where each member's header begins; `end`: where this will.
std::string make_zip_directory(const std::vector<ZipMember>& members,
                               const std::vector<std::int64_t>& at, std::int64_t end);

}  // namespace shmap::io
