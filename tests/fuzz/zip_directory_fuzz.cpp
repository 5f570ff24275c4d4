// .npz archives: any bytes give a ValueError, or members that are in the archive and do not
// overlap. Their contents are a ValueError or agree with the archive, and take no more memory than
// it says.
#include <cstring>
#include <string>
#include <string_view>

#include "core/base/crc.h"
#include "core/io/zip_contents.h"
#include "shmap/error.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/one_member_zip.h"

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
std::string small_archive(std::uint64_t method, const std::string& packed,
                          const std::string& contents) {
  return test::OneMemberZip{packed, contents.size(), crc32(contents.data(), contents.size()),
                            method}
      .text();
}
std::string of_bytes(std::initializer_list<int> bytes) {
  std::string out;
  for (const int b : bytes) out += static_cast<char>(b);
  return out;
}
}  // namespace

std::vector<std::string> seeds() {
  const std::string words = "the quick brown fox jumps over the lazy dog; ";
  std::string text = words + words + words + "a lazier dog: 0123456789 9876543210";
  // The text as zlib deflates it, in a block of fixed codes and in one with its own codes.
  const std::string fixed =
      of_bytes({0x2b, 0xc9, 0x48, 0x55, 0x28, 0x2c, 0xcd, 0x4c, 0xce, 0x56, 0x48, 0x2a, 0xca, 0x2f,
                0xcf, 0x53, 0x48, 0xcb, 0xaf, 0x50, 0xc8, 0x2a, 0xcd, 0x2d, 0x28, 0x56, 0xc8, 0x2f,
                0x4b, 0x2d, 0x52, 0x28, 0x01, 0x4a, 0xe7, 0x24, 0x56, 0x55, 0x2a, 0xa4, 0xe4, 0xa7,
                0x5b, 0x83, 0x79, 0xb4, 0x51, 0x9c, 0x08, 0x62, 0x67, 0x02, 0x85, 0x81, 0x3c, 0x2b,
                0x05, 0x03, 0x43, 0x23, 0x63, 0x13, 0x53, 0x33, 0x73, 0x0b, 0x4b, 0x05, 0x4b, 0x0b,
                0x73, 0x33, 0x53, 0x13, 0x63, 0x23, 0x43, 0x03, 0x00});
  const std::string dynamic =
      of_bytes({0xbd, 0x8a, 0xd7, 0x11, 0x83, 0x30, 0x14, 0x04, 0x5b, 0x79, 0x25, 0x90, 0x83, 0x5d,
                0x8d, 0x72, 0x40, 0x20, 0x50, 0x42, 0x50, 0xbd, 0x65, 0x97, 0xe0, 0x19, 0xfb, 0xef,
                0xf6, 0x76, 0x83, 0x64, 0x70, 0x44, 0x45, 0x16, 0xc0, 0xce, 0x9e, 0x1b, 0x70, 0x9b,
                0x41, 0xc7, 0x75, 0xf7, 0x60, 0x13, 0x73, 0x10, 0x8a, 0x36, 0xe8, 0xbe, 0x80, 0x5a,
                0xf1, 0xfc, 0xd0, 0x6f, 0x62, 0xf4, 0xde, 0xaa, 0xdc, 0x85, 0x1e, 0x50, 0xd5, 0x4d,
                0xdb, 0xf5, 0xc3, 0x38, 0xcd, 0x30, 0x4f, 0xe3, 0xd0, 0x77, 0x6d, 0x53, 0x57, 0x08,
                0x13, 0xca, 0xb8, 0x90, 0x4a, 0x2f, 0x66, 0xdd, 0xec, 0x7e, 0x38, 0x1f, 0x62, 0x3a,
                0xf3, 0x75, 0xff, 0xcb, 0xdc, 0x57, 0x3e, 0x53, 0x0c, 0xde, 0x1d, 0xbb, 0xdd, 0x56,
                0xb3, 0x68, 0x25, 0x05, 0x67, 0x94, 0x60, 0xf4, 0x8d, 0x79, 0x01});
  std::string long_text = text;
  for (int i = 0; i < 5; ++i) long_text += "abcdefghijklmnopqrstuvwxyz";
  for (int i = 0; i < 3; ++i) long_text += "zyxwvutsrqponmlkjihgfedcba";
  return {archive({}),
          archive({{"a.npy", "0123456789"}}),
          archive({{"a.npy", ""}, {"b.npy", "xyz"}, {"c", std::string(200, 'z')}}),
          small_archive(0, "abc", "abc"),
          small_archive(8, of_bytes({1, 3, 0, 0xfc, 0xff}) + "abc", "abc"),
          small_archive(8, fixed, text),
          small_archive(8, dynamic, long_text)};
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
      fuzz::require(m.offset >= 30 && m.packed >= 0 && m.packed <= bytes - m.offset,
                    "a member lies in the archive");
      fuzz::require(m.bytes >= 0 && (m.deflated ? m.bytes / io::kMostInflation <= m.packed
                                                : m.bytes == m.packed),
                    "a member says no more than its bytes can hold");
      fuzz::require(i == 0 || members[i - 1].name < m.name, "no name is there twice");
      for (std::size_t k = 0; k < i && i < 8; ++k) {
        const io::ZipMember& o = members[k];
        fuzz::require(o.offset + o.packed <= m.offset || m.offset + m.packed <= o.offset,
                      "members do not overlap");
      }
    }
    for (const io::ZipMember& m : members) {
      io::ZipContents contents(read, m, "fuzz: member");
      const std::unique_ptr<std::byte[]> all = contents.read_all();
      fuzz::require(crc32(all.get(), static_cast<std::size_t>(m.bytes)) == m.crc,
                    "what is read is what was written");
    }
  } catch (const ValueError& e) {
    fuzz::require_one_line(e.what());
  }
  return 0;
}
