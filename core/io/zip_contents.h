// What is in a member of a zip archive, stored or deflated, from its first byte to its last; held
// against the archive's CRC-32.
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
  // `read` has to outlive it. `name` begins messages.
  ZipContents(const ReadAt& read, const ZipMember& member, std::string name);
  ZipContents(const ZipContents&) = delete;
  ZipContents& operator=(const ZipContents&) = delete;

  // The next bytes, exactly so many, of those that the archive says it has. ValueError where it has
  // fewer. Holds no more than an Inflater.
  void read(std::byte* dst, std::int64_t count);
  // Past the next bytes.
  void skip(std::int64_t count);
  // To be called when all has been read. ValueError where there is more, or where it is not what
  // was written.
  void finish();
  // The rest of it, checked, in memory.
  std::unique_ptr<std::byte[]> read_all();

 private:
  const ReadAt& read_;
  ZipMember member_;
  std::string name_;
  std::int64_t at_ = 0, taken_ = 0;  // bytes given, bytes taken from the archive
  std::uint32_t crc_ = 0;
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace shmap::io
