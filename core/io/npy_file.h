// Reading hyper-rectangles of .npy files, and writing .npy files whole or by hyper-rectangles.
// Everything goes through pread and pwrite, never a mapping: a file that shrinks while it is read
// is an error, not a signal.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/io/npy_format.h"
#include "shmap/dtype.h"
#include "shmap/shape.h"
#include "shmap/slice.h"

namespace shmap::io {

// A file descriptor that closes itself.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& o) noexcept : fd_(o.fd_) { o.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& o) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// An open .npy file. Its const members may be used from several threads at once.
class NpyFile {
 public:
  // Opens the file and reads its header. ValueError where it is no well-formed .npy file (see
  // parse_npy_header) or no regular file, Error where the system refuses.
  explicit NpyFile(std::string path);
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;

  const NpyHeader& header() const { return header_; }
  const std::string& path() const { return path_; }

  // The elements of `box` (a Slice a dim, within the shape) to `dst`, in C order and the machine's
  // byte order whatever the file's; a bool is 0 or 1 whatever its byte. Reads the box's own bytes
  // only, but for gaps of less than a page between runs of less than 512 bytes. Blocks; takes up to
  // 4 MiB of memory. Error where the file has become shorter or the system fails to read; `dst` may
  // then be partly written.
  void read_box(std::span<const Slice> box, void* dst) const;
  void read_all(void* dst) const;

  // Bytes of elements read from the file so far, gaps included.
  std::int64_t data_bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  void read_bytes(std::int64_t offset, std::byte* dst, std::int64_t count) const;
  void read_rows(const Shape& shape, std::span<const Slice> box, std::byte* dst) const;
  void read_columns(std::span<const Slice> box, std::byte* dst) const;

  std::string path_;
  FileDescriptor fd_;
  NpyHeader header_;
  mutable std::atomic<std::int64_t> bytes_read_{0};
};

// A .npy file in the making: version 1.0, C order, little endian. It takes its name only in
// commit(), so that a reader finds the old file or the whole new one; what is not committed is
// removed. write_box may be called from several threads at once, on boxes that do not overlap.
class NpyWriter {
 public:
  // TypeError for prng_key, ValueError for a path that names something other than a regular file,
  // Error where the system refuses.
  NpyWriter(std::string path, DType dtype, const Shape& shape);
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;
  ~NpyWriter();

  // `src` holds the box's elements in C order.
  void write_box(std::span<const Slice> box, const void* src);
  // Error where fewer bytes than the array's were written, or the system refuses.
  void commit();

 private:
  std::string path_;       // where the file will be
  std::string temporary_;  // where it is; empty once committed
  FileDescriptor fd_;
  DType dtype_;
  Shape shape_;
  std::int64_t data_offset_ = 0;
  std::atomic<std::int64_t> bytes_written_{0};
};

// The whole array, from C order.
void write_npy(const std::string& path, DType dtype, const Shape& shape, const void* data);

}  // namespace shmap::io
