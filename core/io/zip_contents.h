// Reads the contents of a member of a zip archive, stored or deflated, from begin to end, and
// checks them against the archive's CRC-32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/io/inflate.h"
#include "core/io/zip_directory.h"

namespace shmap::io {

class ZipContents {
 public:
  // `read` must outlive this object. `name` begins messages.
  ZipContents(const ReadAt& read, const ZipMember& member, std::string name);
  ZipContents(const ZipContents&) = delete;
  ZipContents& operator=(const ZipContents&) = delete;

  // Reads exactly the next `count` bytes of the contents. ValueError where the member has fewer.
  // Uses no more memory than an Inflater.
  void read(std::byte* dst, std::int64_t count);
  // Skips the next `count` bytes.
  void skip(std::int64_t count);
  // To be called after the last byte. ValueError where there are more bytes, or the CRC-32 is
  // wrong.
  void finish();
  // Reads the remaining contents into memory, and checks them.
  std::unique_ptr<std::byte[]> read_all();

 private:
  const ReadAt& read_;
  ZipMember member_;
  std::string name_;
  std::int64_t at_ = 0, taken_ = 0;  // bytes returned, and bytes read from the archive
  std::uint32_t crc_ = 0;
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace shmap::io
