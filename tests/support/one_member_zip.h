// A zip archive of one member, "a.npy", without fields of 64 bits, as zip writes small archives.
// Its fields need not be true, so that a reader's checks can be tested.
#pragma once
#include <cstdint>
#include <string>

namespace shmap::test {

struct OneMemberZip {
  std::string packed;        // the member's bytes in the archive
  std::uint64_t bytes = 0;   // how many the header declares once they are unpacked
  std::uint32_t crc = 0;     // of the unpacked bytes, as the header declares
  std::uint64_t method = 8;  // 0: stored, 8: deflated

  std::string text() const {
    std::string out, directory;
    put(out, 0x04034b50, 4);
    put_common(out);
    out += "a.npy" + packed;
    put(directory, 0x02014b50, 4);
    put(directory, 20, 2);
    put_common(directory);
    directory += std::string(14, '\0');
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

  // `value` as `count` bytes, lowest first.
  static void put(std::string& out, std::uint64_t value, int count) {
    for (int k = 0; k < count; ++k) out += static_cast<char>(value >> (8 * k) & 255);
  }

 private:
  // The fields that the member's header and its directory entry share.
  void put_common(std::string& out) const {
    put(out, 20, 2);
    put(out, 0, 2);
    put(out, method, 2);
    put(out, 0, 4);
    put(out, crc, 4);
    put(out, packed.size(), 4);
    put(out, bytes, 4);
    put(out, 5, 2);
    put(out, 0, 2);
  }
};

}  // namespace shmap::test
