#include "core/io/zip_directory.h"

#include <algorithm>

#include "core/io/inflate.h"
#include "core/io/json_reader.h"
#include "shmap/error.h"

namespace shmap::io {

namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                        kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::int64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                       kLocatorBytes = 20, kMaxComment = 65535;
constexpr std::uint64_t kIn64 = 0xffffffff;  // the value is in the 64-bit field
constexpr std::uint64_t kStored = 0, kDeflated = 8;

std::uint64_t number(std::string_view bytes, std::size_t at, int count) {
  std::uint64_t n = 0;
  for (int k = count; k-- > 0;)
    n = n << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(k)]);
  return n;
}

class DirectoryReader {
 public:
  DirectoryReader(const ReadAt& read, std::int64_t size, const std::string& name)
      : read_(read), size_(size), name_(name) {}

  std::vector<ZipMember> run() {
    find_end();
    if (count_ * static_cast<std::uint64_t>(kCentralBytes) > bytes_ || bytes_ > start_of_end_ ||
        begin_ > start_of_end_ - bytes_)
      fail("a directory of " + std::to_string(count_) + " members in " + std::to_string(bytes_) +
           " bytes at " + std::to_string(begin_) + " of " + std::to_string(size_));
    if (bytes_ > static_cast<std::uint64_t>(kZipMaxDirectory))
      throw ValueError(name_ + ": the directory of its " + std::to_string(count_) +
                       " members has " + std::to_string(bytes_) + " bytes: at most " +
                       std::to_string(kZipMaxDirectory) + " are read");
    const std::string directory = text(begin_, bytes_);
    std::vector<ZipMember> members;
    members.reserve(static_cast<std::size_t>(count_));
    std::size_t at = 0;
    for (std::uint64_t k = 0; k < count_; ++k) members.push_back(member(directory, at));
    if (at != directory.size()) fail("its directory goes on after its last member");
    check_apart(members);
    std::sort(members.begin(), members.end(),
              [](const ZipMember& a, const ZipMember& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < members.size(); ++i)
      if (members[i].name == members[i - 1].name)
        fail("member " + quoted_bytes(members[i].name) + " is there twice");
    return members;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ValueError(name_ + ": it is damaged or no .npz file: " + why);
  }
  std::string text(std::uint64_t at, std::uint64_t bytes) const {
    std::string out(static_cast<std::size_t>(bytes), '\0');
    read_(static_cast<std::int64_t>(at), reinterpret_cast<std::byte*>(out.data()),
          static_cast<std::int64_t>(bytes));
    return out;
  }

  // Finds the end record, which is followed by a comment of the length that it gives.
  void find_end() {
    const auto size = static_cast<std::uint64_t>(size_);
    if (size_ < kEndBytes) fail("it has " + std::to_string(size_) + " bytes");
    const auto tail_bytes =
        static_cast<std::uint64_t>(std::min<std::int64_t>(size_, kEndBytes + kMaxComment));
    const std::string tail = text(size - tail_bytes, tail_bytes);
    std::size_t at = tail.size() - static_cast<std::size_t>(kEndBytes);
    while (number(tail, at, 4) != kEnd ||
           number(tail, at + 20, 2) != tail.size() - at - static_cast<std::size_t>(kEndBytes)) {
      if (at == 0) fail("it has no directory of a zip archive at its end");
      --at;
    }
    start_of_end_ = size - tail_bytes + at;
    if (number(tail, at + 4, 2) != 0 || number(tail, at + 6, 2) != 0 ||
        number(tail, at + 8, 2) != number(tail, at + 10, 2))
      fail("it is one part of an archive in several files");
    count_ = number(tail, at + 10, 2);
    bytes_ = number(tail, at + 12, 4);
    begin_ = number(tail, at + 16, 4);
    if (count_ == 0xffff || bytes_ == kIn64 || begin_ == kIn64) find_end64();
  }

  void find_end64() {
    if (start_of_end_ < static_cast<std::uint64_t>(kLocatorBytes + kEnd64Bytes))
      fail("its 64-bit directory is missing");
    const std::string locator = text(start_of_end_ - kLocatorBytes, kLocatorBytes);
    const std::uint64_t at = number(locator, 8, 8);
    if (number(locator, 0, 4) != kLocator64 ||
        at > start_of_end_ - static_cast<std::uint64_t>(kLocatorBytes + kEnd64Bytes))
      fail("its 64-bit directory is missing");
    const std::string end = text(at, kEnd64Bytes);
    if (number(end, 0, 4) != kEnd64 || number(end, 24, 8) != number(end, 32, 8))
      fail("its 64-bit directory is invalid");
    count_ = number(end, 32, 8);
    bytes_ = number(end, 40, 8);
    begin_ = number(end, 48, 8);
    start_of_end_ = at;
    if (count_ > static_cast<std::uint64_t>(kZipMaxDirectory)) fail("it has too many members");
  }

  ZipMember member(const std::string& directory, std::size_t& at) const {
    const auto left = [&] { return directory.size() - at; };
    if (left() < static_cast<std::size_t>(kCentralBytes) || number(directory, at, 4) != kCentral)
      fail("its directory ends early");
    const std::string_view entry = std::string_view(directory).substr(at);
    const std::uint64_t flags = number(entry, 8, 2), method = number(entry, 10, 2);
    const std::size_t name_bytes = number(entry, 28, 2), extra_bytes = number(entry, 30, 2),
                      comment_bytes = number(entry, 32, 2);
    const std::size_t all =
        static_cast<std::size_t>(kCentralBytes) + name_bytes + extra_bytes + comment_bytes;
    if (left() < all) fail("its directory ends early");
    at += all;
    ZipMember m;
    m.name = entry.substr(static_cast<std::size_t>(kCentralBytes), name_bytes);
    m.crc = static_cast<std::uint32_t>(number(entry, 16, 4));
    std::uint64_t packed = number(entry, 20, 4), bytes = number(entry, 24, 4),
                  header = number(entry, 42, 4);
    take_64(entry.substr(static_cast<std::size_t>(kCentralBytes) + name_bytes, extra_bytes), bytes,
            packed, header);
    if (flags & 1) fail("member " + quoted_bytes(m.name) + " is encrypted");
    if (method != kStored && method != kDeflated) {
      throw ValueError(name_ + ": member " + quoted_bytes(m.name) + " is compressed by method " +
                       std::to_string(method) +
                       ": wanted stored or deflated members, as numpy.savez and "
                       "numpy.savez_compressed write them");
    }
    m.deflated = method == kDeflated;
    if (!m.deflated && packed != bytes)
      fail("member " + quoted_bytes(m.name) + " is stored, with two different sizes");
    locate(m, header, packed);
    if (m.deflated && bytes / static_cast<std::uint64_t>(kMostInflation) > packed)
      fail("member " + quoted_bytes(m.name) + " says that its " + std::to_string(packed) +
           " bytes hold " + std::to_string(bytes) + ", which is more than they can");
    m.bytes = static_cast<std::int64_t>(bytes);
    return m;
  }

  // Reads from the extra field with id 1 the 64-bit values of those fields that are all ones, in
  // this order.
  void take_64(std::string_view extra, std::uint64_t& bytes, std::uint64_t& packed,
               std::uint64_t& header) const {
    while (extra.size() >= 4) {
      const std::uint64_t id = number(extra, 0, 2);
      const std::size_t size = number(extra, 2, 2);
      if (size > extra.size() - 4) fail("an extra field has no end");
      std::string_view field = extra.substr(4, size);
      extra.remove_prefix(4 + size);
      if (id != 1) continue;
      for (std::uint64_t* value : {&bytes, &packed, &header}) {
        if (*value != kIn64) continue;
        if (field.size() < 8) fail("a 64-bit field is missing");
        *value = number(field, 0, 8);
        field.remove_prefix(8);
      }
      return;
    }
  }

  // Finds the contents, which follow the member's own header; that header must have the same name.
  void locate(ZipMember& m, std::uint64_t header, std::uint64_t packed) const {
    const auto outside = [&] {
      fail("member " + quoted_bytes(m.name) + " of " + std::to_string(packed) + " bytes at " +
           std::to_string(header) + " does not lie in front of the directory at " +
           std::to_string(begin_));
    };
    if (begin_ < static_cast<std::uint64_t>(kLocalBytes) || header > begin_ - kLocalBytes)
      outside();
    const std::string local = text(header, kLocalBytes);
    const std::uint64_t name_bytes = number(local, 26, 2), extra_bytes = number(local, 28, 2);
    const std::uint64_t front = kLocalBytes + name_bytes + extra_bytes;
    if (number(local, 0, 4) != kLocal || name_bytes != m.name.size())
      fail("member " + quoted_bytes(m.name) + " has a header that contradicts the directory");
    if (front > begin_ - header || packed > begin_ - header - front) outside();
    if (text(header + kLocalBytes, name_bytes) != m.name ||
        number(local, 8, 2) != (m.deflated ? kDeflated : kStored))
      fail("member " + quoted_bytes(m.name) + " has a header that contradicts the directory");
    m.offset = static_cast<std::int64_t>(header + front);
    m.packed = static_cast<std::int64_t>(packed);
  }

  void check_apart(std::vector<ZipMember>& members) const {
    std::sort(members.begin(), members.end(),
              [](const ZipMember& a, const ZipMember& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < members.size(); ++i) {
      const ZipMember &a = members[i - 1], &b = members[i];
      const auto front = kLocalBytes + static_cast<std::int64_t>(b.name.size());
      if (b.offset - front < a.offset + a.packed)
        fail("members " + quoted_bytes(a.name) + " and " + quoted_bytes(b.name) + " overlap");
    }
  }

  const ReadAt& read_;
  std::int64_t size_;
  const std::string& name_;
  std::uint64_t count_ = 0, bytes_ = 0, begin_ = 0, start_of_end_ = 0;
};

void put(std::string& out, std::uint64_t value, int count) {
  for (int k = 0; k < count; ++k) out += static_cast<char>(value >> (8 * k) & 255);
}

std::uint64_t flags_of(const std::string& name) {
  const bool ascii = std::all_of(name.begin(), name.end(), [](char c) { return c > 0; });
  return ascii ? 0 : 0x800;
}

// Writes the fields, from the version on, that the local header and the directory have in common.
void put_common(std::string& out, const ZipMember& m) {
  put(out, 45, 2);
  put(out, flags_of(m.name), 2);
  put(out, kStored, 2);
  put(out, 0x0021'0000, 4);  // 1 January 1980, as for files without a date
  put(out, m.crc, 4);
  put(out, kIn64, 4);
  put(out, kIn64, 4);
  put(out, m.name.size(), 2);
}

}  // namespace

std::vector<ZipMember> read_zip_directory(const ReadAt& read, std::int64_t file_size,
                                          const std::string& name) {
  return DirectoryReader(read, file_size, name).run();
}

std::string make_zip_header(const ZipMember& m) {
  std::string out;
  put(out, kLocal, 4);
  put_common(out, m);
  put(out, 20, 2);
  out += m.name;
  put(out, 1, 2);
  put(out, 16, 2);
  put(out, static_cast<std::uint64_t>(m.bytes), 8);
  put(out, static_cast<std::uint64_t>(m.bytes), 8);
  return out;
}

std::int64_t zip_entry_bytes(std::string_view name) {
  constexpr std::int64_t kExtra = 28;  // the 64-bit fields
  return kCentralBytes + static_cast<std::int64_t>(name.size()) + kExtra;
}

std::string make_zip_directory(const std::vector<ZipMember>& members,
                               const std::vector<std::int64_t>& at, std::int64_t end) {
  std::string out;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ZipMember& m = members[i];
    put(out, kCentral, 4);
    put(out, 45, 2);
    put_common(out, m);
    put(out, 28, 2);
    put(out, 0, 2);                          // no comment
    put(out, 0, 2);                          // disk
    put(out, 0, 2);                          // attributes
    put(out, std::uint64_t{0600} << 16, 4);  // as for a regular file
    put(out, kIn64, 4);
    out += m.name;
    put(out, 1, 2);
    put(out, 24, 2);
    put(out, static_cast<std::uint64_t>(m.bytes), 8);
    put(out, static_cast<std::uint64_t>(m.bytes), 8);
    put(out, static_cast<std::uint64_t>(at[i]), 8);
  }
  const std::uint64_t bytes = out.size(), begin = static_cast<std::uint64_t>(end);
  put(out, kEnd64, 4);
  put(out, kEnd64Bytes - 12, 8);
  put(out, 45, 2);
  put(out, 45, 2);
  put(out, 0, 8);  // disks
  put(out, members.size(), 8);
  put(out, members.size(), 8);
  put(out, bytes, 8);
  put(out, begin, 8);
  put(out, kLocator64, 4);
  put(out, 0, 4);
  put(out, begin + bytes, 8);
  put(out, 1, 4);
  put(out, kEnd, 4);
  put(out, 0, 4);
  put(out, 0xffff, 2);
  put(out, 0xffff, 2);
  put(out, kIn64, 4);
  put(out, kIn64, 4);
  put(out, 0, 2);
  return out;
}

}  // namespace shmap::io
