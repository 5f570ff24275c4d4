// A file that is read by offsets, and boxes of row-major arrays in it. Everything goes through
// pread, never a mapping: a file that shrinks while it is read is an error, not a signal.
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

// Its const members may be used from several threads at once.
class InputFile {
 public:
  // `kind` starts messages: "npy file" makes "npy file 'x.npy'". ValueError where the path holds a
  // null character or names no regular file, Error where the system refuses.
  InputFile(std::string kind, std::string path);
  // One whose contents are in memory already; `name` starts messages.
  InputFile(std::string name, std::unique_ptr<std::byte[]> contents, std::int64_t bytes)
      : name_(std::move(name)), contents_(std::move(contents)), size_(bytes) {}
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }  // "npy file 'x.npy'"
  std::int64_t size() const { return size_; }        // when it was opened

  // Exactly these bytes. Error where the file has become shorter or the system fails to read.
  void read(std::int64_t offset, std::byte* dst, std::int64_t count) const;
  // The elements of `box`, a Slice a dim and within the shape, of a row-major array that begins at
  // `base`, to `dst`, row-major. Reads the box's own bytes only, but for gaps of less than a page
  // between runs of less than 512 bytes; takes up to 256 KiB of memory.
  void read_box(std::int64_t base, const Shape& shape, std::span<const Slice> box, int itemsize,
                std::byte* dst) const;

  // Bytes read so far, gaps included.
  std::int64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  void forget_bytes_read() { bytes_read_.store(0, std::memory_order_relaxed); }

 private:
  std::string path_, name_;
  FileDescriptor fd_;
  std::unique_ptr<std::byte[]> contents_;  // where they are not in a file
  std::int64_t size_ = 0;
  mutable std::atomic<std::int64_t> bytes_read_{0};
};

// "npy file 'x.npy'". A path with a null character names another file to the system than to whoever
// reads it here: ValueError.
std::string named_file(const std::string& kind, const std::string& path);

}  // namespace shmap::io
