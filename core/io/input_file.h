// Reads a file by offsets, and boxes of row-major arrays in it. Reads use pread and never a
// mapping, so that a file that shrinks meanwhile gives an error and not a signal.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/base/file_descriptor.h"
#include "shmap/shape.h"
#include "shmap/slice.h"

namespace shmap::io {

// Several threads may call const members at once.
class InputFile {
 public:
  // `kind` begins messages: "npy file" makes "npy file 'x.npy'". ValueError where the path contains
  // a null character or does not name a regular file, Error where the operating system refuses.
  InputFile(std::string kind, std::string path);
  // A file whose contents are in memory; `name` begins messages.
  InputFile(std::string name, std::unique_ptr<std::byte[]> contents, std::int64_t bytes)
      : name_(std::move(name)), contents_(std::move(contents)), size_(bytes) {}
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }  // "npy file 'x.npy'"
  std::int64_t size() const { return size_; }        // when it was opened

  // Reads exactly these bytes. Error where the file has become shorter or reading fails.
  void read(std::int64_t offset, std::byte* dst, std::int64_t count) const;
  // Reads the elements of `box` (one Slice per dim, within the shape) of a row-major array at
  // offset `base` into `dst`, row-major. Reads only the box's bytes, except gaps of less than a
  // page between runs of less than 512 bytes. Uses up to 256 KiB of memory.
  void read_box(std::int64_t base, const Shape& shape, std::span<const Slice> box, int itemsize,
                std::byte* dst) const;

  // Bytes read so far, gaps included.
  std::int64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  void forget_bytes_read() { bytes_read_.store(0, std::memory_order_relaxed); }

 private:
  std::string path_, name_;
  FileDescriptor fd_;
  std::unique_ptr<std::byte[]> contents_;  // null where the contents are in a file
  std::int64_t size_ = 0;
  mutable std::atomic<std::int64_t> bytes_read_{0};
};

// Returns "npy file 'x.npy'". ValueError for a path with a null character, at which the operating
// system would cut the path.
std::string named_file(const std::string& kind, const std::string& path);

}  // namespace shmap::io
