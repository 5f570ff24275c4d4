// Reads boxes (hyper-rectangles) of .npy files, and writes .npy files, whole or by boxes.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/io/input_file.h"
#include "core/io/npy_format.h"
#include "core/io/output_file.h"
#include "shmap/dtype.h"
#include "shmap/shape.h"
#include "shmap/slice.h"

namespace shmap::io {

// True if the elements are in C order.
bool has_rows(const NpyHeader& header);

// An open .npy file. Several threads may call const members at once.
class NpyFile {
 public:
  // Opens the file and reads its header. ValueError where the file is not a well-formed .npy file
  // (see parse_npy_header) or not a regular file, Error where the operating system refuses.
  explicit NpyFile(std::string path);
  // An .npy file inside of a larger file (a member of an archive): `bytes` bytes from `base` on.
  // `name` begins messages.
  NpyFile(std::shared_ptr<const InputFile> file, std::int64_t base, std::int64_t bytes,
          const std::string& name);
  NpyFile(NpyFile&&) = default;
  NpyFile& operator=(NpyFile&&) = default;

  const NpyHeader& header() const { return header_; }
  const std::string& path() const { return file_->path(); }
  // True if read_box reads contiguous pieces (in C order) as fast as the whole box at once.
  bool reads_rows() const { return has_rows(header_); }

  // Reads the elements of `box` (one Slice per dim, within the shape) into `dst`, in C order and
  // the machine's byte order; bools become 0 or 1. Reads only the box's bytes, except gaps of less
  // than a page between runs of less than 512 bytes. Blocks; uses up to 4 MiB of memory. Error
  // where the file has become shorter or reading fails; `dst` may then be partly written.
  void read_box(std::span<const Slice> box, void* dst) const;
  void read_all(void* dst) const;

  // Bytes of elements read from the file so far, gaps included.
  std::int64_t data_bytes_read() const { return file_->bytes_read(); }

 private:
  void read_columns(std::span<const Slice> box, std::byte* dst) const;

  std::shared_ptr<const InputFile> file_;
  std::int64_t base_ = 0;  // the offset of its first byte in the file
  NpyHeader header_;
};

// Converts elements as read from the file to the machine's byte order, and bools to 0 or 1.
void take_elements(const NpyHeader& header, void* data, std::int64_t count);

// Writes a .npy file (through an OutputFile): version 1.0, C order, little endian. Several threads
// may call write_box at once, for boxes that do not overlap.
class NpyWriter {
 public:
  // Throws the errors of OutputFile, and TypeError for prng_key.
  NpyWriter(std::string path, DType dtype, const Shape& shape);
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  // `src` holds the box's elements in C order.
  void write_box(std::span<const Slice> box, const void* src);
  // When it returns, the file survives a loss of power. Error where the written bytes are fewer
  // than the array's, or where the operating system refuses.
  void commit();

 private:
  std::string header_;
  std::int64_t wanted_;  // bytes of the array
  DType dtype_;
  Shape shape_;
  OutputFile file_;
  std::atomic<std::int64_t> bytes_written_{0};
};

// Divides a box into pieces of at most `most_bytes` (but at least one element), each of which is
// contiguous in a C-ordered array of the box's shape. Calls see(piece, offset) for each, in order,
// with the offset of its first byte in that array. A box without elements has no pieces.
void for_each_piece(std::span<const Slice> box, int itemsize, std::int64_t most_bytes,
                    const std::function<void(std::span<const Slice>, std::int64_t)>& see);

}  // namespace shmap::io
