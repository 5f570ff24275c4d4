// Reading hyper-rectangles of .npy files, and writing .npy files whole or by hyper-rectangles.
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

// Whether the elements stand in C order.
bool has_rows(const NpyHeader& header);

// An open .npy file. Its const members may be used from several threads at once.
class NpyFile {
 public:
  // Opens the file and reads its header. ValueError where it is no well-formed .npy file (see
  // parse_npy_header) or no regular file, Error where the system refuses.
  explicit NpyFile(std::string path);
  // The same of a part of a larger file, an archive's member: `bytes` from `base` on. `name` stands
  // in messages for the file's.
  NpyFile(std::shared_ptr<const InputFile> file, std::int64_t base, std::int64_t bytes,
          const std::string& name);
  NpyFile(NpyFile&&) = default;
  NpyFile& operator=(NpyFile&&) = default;

  const NpyHeader& header() const { return header_; }
  const std::string& path() const { return file_->path(); }
  // Whether read_box reads pieces that are contiguous in C order as quickly as all at once.
  bool reads_rows() const { return has_rows(header_); }

  // The elements of `box` (a Slice a dim, within the shape) to `dst`, in C order and the machine's
  // byte order whatever the file's; a bool is 0 or 1 whatever its byte. Reads the box's own bytes
  // only, but for gaps of less than a page between runs of less than 512 bytes. Blocks; takes up to
  // 4 MiB of memory. Error where the file has become shorter or the system fails to read; `dst` may
  // then be partly written.
  void read_box(std::span<const Slice> box, void* dst) const;
  void read_all(void* dst) const;

  // Bytes of elements read from the file so far, gaps included.
  std::int64_t data_bytes_read() const { return file_->bytes_read(); }

 private:
  void read_columns(std::span<const Slice> box, std::byte* dst) const;

  std::shared_ptr<const InputFile> file_;
  std::int64_t base_ = 0;  // where its first byte is in the file
  NpyHeader header_;
};

// Elements as they stand in the file, to the machine's byte order; a bool becomes 0 or 1.
void take_elements(const NpyHeader& header, void* data, std::int64_t count);

// A .npy file in the making (an OutputFile): version 1.0, C order, little endian. write_box may be
// called from several threads at once, on boxes that do not overlap.
class NpyWriter {
 public:
  // As an OutputFile; TypeError for prng_key.
  NpyWriter(std::string path, DType dtype, const Shape& shape);
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  // `src` holds the box's elements in C order.
  void write_box(std::span<const Slice> box, const void* src);
  // Once it returns, the file survives a loss of power. Error where fewer bytes than the array's
  // were written, or the system refuses.
  void commit();

 private:
  std::string header_;
  std::int64_t wanted_;  // bytes of the array
  DType dtype_;
  Shape shape_;
  OutputFile file_;
  std::atomic<std::int64_t> bytes_written_{0};
};

// Cuts a box into boxes of at most `most_bytes` (one element at least), each of which is contiguous
// in a C-ordered array of the box's shape: calls see(piece, offset) for each, with the offset of
// its first byte in that array, in order. None for a box of no elements.
void for_each_piece(std::span<const Slice> box, int itemsize, std::int64_t most_bytes,
                    const std::function<void(std::span<const Slice>, std::int64_t)>& see);

// The whole array, from C order.
void write_npy(const std::string& path, DType dtype, const Shape& shape, const void* data);

}  // namespace shmap::io
