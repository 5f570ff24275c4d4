// The directory of .npz archives: any bytes give a ValueError, or members that lie in the archive
// apart from one another; and of arrays' names the same archive again when it is written.
#include <cstring>
#include <string>
#include <string_view>

#include "core/base/crc.h"
#include "core/io/zip_directory.h"
#include "shmap/error.h"
#include "tests/fuzz/fuzz.h"

namespace shmap::fuzz {

namespace {
std::string archive(const std::vector<std::pair<std::string, std::string>>& contents) {
  std::string out;
  std::vector<io::ZipMember> members;
  std::vector<std::int64_t> at;
  for (const auto& [name, bytes] : contents) {
    io::ZipMember m{name, 0, static_cast<std::int64_t>(bytes.size()),
                    crc32(bytes.data(), bytes.size())};
    at.push_back(static_cast<std::int64_t>(out.size()));
    out += io::make_zip_header(m) + bytes;
    members.push_back(m);
  }
  return out + io::make_zip_directory(members, at, static_cast<std::int64_t>(out.size()));
}
// One without fields of 64 bits, as zip writes small ones.
std::string small_archive() {
  const auto put = [](std::string& out, std::uint64_t value, int count) {
    for (int k = 0; k < count; ++k)
      out += k < 8 ? static_cast<char>(value >> (8 * k) & 255) : char{};
  };
  const auto common = [&](std::string& out) {
    put(out, 20, 2);
    put(out, 0, 8);
    put(out, crc32("abc", 3), 4);
    put(out, 3, 4);
    put(out, 3, 4);
    put(out, 5, 2);
    put(out, 0, 2);
  };
  std::string out, directory;
  put(out, 0x04034b50, 4);
  common(out);
  out += "a.npyabc";
  put(directory, 0x02014b50, 4);
  put(directory, 20, 2);
  common(directory);
  put(directory, 0, 14);
  directory += "a.npy";
  const std::size_t begin = out.size();
  out += directory;
  put(out, 0x06054b50, 4);
  put(out, 0, 4);
  put(out, 1, 2);
  put(out, 1, 2);
  put(out, directory.size(), 4);
  put(out, begin, 4);
  put(out, 0, 2);
  return out;
}
}  // namespace

std::vector<std::string> seeds() {
  return {archive({}), archive({{"a.npy", "0123456789"}}),
          archive({{"a.npy", ""}, {"b.npy", "xyz"}, {"c", std::string(200, 'z')}}),
          small_archive()};
}

std::vector<std::string> dictionary() {
  return {"PK\3\4",
          "PK\1\2",
          "PK\5\6",
          "PK\6\6",
          "PK\6\7",
          "a.npy",
          "b.npy",
          std::string("\0\0", 2),
          std::string("\0\0\0\0", 4),
          std::string("\x14\0", 2),
          std::string("\1\0\x10\0", 4),
          std::string("\1\0\x18\0", 4),
          "\xff\xff",
          "\xff\xff\xff\xff",
          "\xff\xff\xff\xff\xff\xff\xff\x7f",
          std::string("\x08\0", 2)};
}

}  // namespace shmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shmap;
  const auto bytes = static_cast<std::int64_t>(size);
  const io::ReadAt read = [&](std::int64_t at, std::byte* dst, std::int64_t count) {
    fuzz::require(at >= 0 && count >= 0 && at <= bytes && count <= bytes - at,
                  "nothing outside of the archive is read");
    if (count > 0) std::memcpy(dst, data + at, static_cast<std::size_t>(count));
  };
  try {
    const std::vector<io::ZipMember> members = io::read_zip_directory(read, bytes, "fuzz");
    for (std::size_t i = 0; i < members.size(); ++i) {
      const io::ZipMember& m = members[i];
      fuzz::require(m.offset >= 30 && m.bytes >= 0 && m.bytes <= bytes - m.offset,
                    "a member lies in the archive");
      fuzz::require(i == 0 || members[i - 1].name < m.name, "no name is there twice");
      for (std::size_t k = 0; k < i && i < 8; ++k) {
        const io::ZipMember& o = members[k];
        fuzz::require(o.offset + o.bytes <= m.offset || m.offset + m.bytes <= o.offset,
                      "members do not overlap");
      }
    }
  } catch (const ValueError& e) {
    fuzz::require_one_line(e.what());
  }
  return 0;
}
