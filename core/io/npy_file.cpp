#include "core/io/npy_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/file_descriptor.h"
#include "core/io/file_box.h"
#include "shmap/error.h"

namespace shmap::io {

static_assert(std::endian::native == std::endian::little, "npy files are read as little endian");

namespace {

constexpr std::int64_t kReorderBytes = std::int64_t{4} << 20;

template <class T>
void swap_elements(std::byte* p, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i, p += sizeof(T)) {
    T v;
    std::memcpy(&v, p, sizeof v);
    if constexpr (sizeof(T) == 2)
      v = __builtin_bswap16(v);
    else if constexpr (sizeof(T) == 4)
      v = __builtin_bswap32(v);
    else
      v = __builtin_bswap64(v);
    std::memcpy(p, &v, sizeof v);
  }
}

void swap_bytes(std::byte* p, std::int64_t count, int itemsize) {
  if (itemsize == 2) swap_elements<std::uint16_t>(p, count);
  if (itemsize == 4) swap_elements<std::uint32_t>(p, count);
  if (itemsize == 8) swap_elements<std::uint64_t>(p, count);
}

Shape box_shape(std::span<const Slice> box) {
  Shape s;
  for (const Slice& b : box) s.push_back(b.stop - b.start);
  return s;
}

Shape reversed(const Shape& shape) {
  Shape s;
  for (std::size_t d = shape.size(); d-- > 0;) s.push_back(shape[d]);
  return s;
}

}  // namespace

NpyFile::NpyFile(std::string path) {
  const auto file = std::make_shared<InputFile>("npy file", std::move(path));
  *this = NpyFile(file, 0, file->size(), file->name());
  file->forget_bytes_read();
}

NpyFile::NpyFile(std::shared_ptr<const InputFile> file, std::int64_t base, std::int64_t bytes,
                 const std::string& name)
    : file_(std::move(file)), base_(base) {
  std::vector<std::byte> prefix(static_cast<std::size_t>(std::min(bytes, kNpyMaxPrefix)));
  file_->read(base, prefix.data(), static_cast<std::int64_t>(prefix.size()));
  header_ = parse_npy_header(prefix, bytes, name);
}

// Reads a box of a file in Fortran order, in pieces that fit into the staging buffer and are then
// copied to their destinations.
void NpyFile::read_columns(std::span<const Slice> box, std::byte* dst) const {
  const int rank = header_.shape.rank();
  const int size = itemsize(header_.dtype);
  const Shape file_shape = reversed(header_.shape);
  const Shape extents = box_shape(box);
  std::int64_t dst_strides[kMaxRank];
  std::int64_t total = 1;
  for (int d = rank; d-- > 0; total *= extents[d]) dst_strides[d] = total;
  if (total == 0) return;

  // A piece covers dims 0 … split - 1 whole, `step` indices of dim `split`, and one index of each
  // later dim.
  const std::int64_t limit = kReorderBytes / size;
  int split = 0;
  std::int64_t inner = 1;
  while (split < rank - 1 && inner * extents[split] <= limit) inner *= extents[split++];
  const std::int64_t step = std::clamp<std::int64_t>(limit / inner, 1, extents[split]);
  const std::unique_ptr<std::byte[]> staging(
      new std::byte[static_cast<std::size_t>(inner * step * size)]);

  std::int64_t index[kMaxRank] = {};  // index of the piece, relative to the box
  Slice file_box[kMaxRank];
  for (;;) {
    Shape part;
    std::int64_t at = 0;
    for (int d = 0; d < rank; ++d) {
      const std::int64_t n = d < split    ? extents[d]
                             : d == split ? std::min(step, extents[d] - index[d])
                                          : 1;
      part.push_back(n);
      const std::int64_t start = box[d].start + index[d];
      file_box[rank - 1 - d] = {start, start + n};
      at += index[d] * dst_strides[d];
    }
    file_->read_box(base_ + header_.data_offset, file_shape,
                    {file_box, static_cast<std::size_t>(rank)}, size, staging.get());
    copy_fortran_to_strided(staging.get(), dst + at * size, part,
                            {dst_strides, static_cast<std::size_t>(rank)}, size);
    int d = split;
    for (; d < rank; ++d) {
      index[d] += d == split ? step : 1;
      if (index[d] < extents[d]) break;
      index[d] = 0;
    }
    if (d == rank) return;
  }
}

void NpyFile::read_box(std::span<const Slice> box, void* dst) const {
  check_box(header_.shape, box, "npy read_box");
  auto* out = static_cast<std::byte*>(dst);
  const std::int64_t count = box_shape(box).num_elements();
  if (count == 0) return;
  if (reads_rows())
    file_->read_box(base_ + header_.data_offset, header_.shape, box, itemsize(header_.dtype), out);
  else
    read_columns(box, out);
  take_elements(header_, out, count);
}

void take_elements(const NpyHeader& header, void* data, std::int64_t count) {
  auto* const p = static_cast<std::byte*>(data);
  if (header.big_endian) swap_bytes(p, count, itemsize(header.dtype));
  if (header.dtype == DType::bool_)
    for (std::int64_t i = 0; i < count; ++i) p[i] = std::byte{p[i] != std::byte{0}};
}

void NpyFile::read_all(void* dst) const {
  Slice box[kMaxRank];
  for (std::size_t d = 0; d < header_.shape.size(); ++d) box[d] = {0, header_.shape[d]};
  read_box({box, header_.shape.size()}, dst);
}

bool has_rows(const NpyHeader& header) {
  int long_dims = 0;
  for (std::int64_t e : header.shape) long_dims += e > 1;
  return !header.fortran_order || long_dims <= 1;
}

NpyWriter::NpyWriter(std::string path, DType dtype, const Shape& shape)
    : header_(make_npy_header(dtype, shape)),
      wanted_(checked_bytes(shape, itemsize(dtype))),
      dtype_(dtype),
      shape_(shape),
      file_("npy file", path) {
  file_.write(0, header_.data(), static_cast<std::int64_t>(header_.size()));
  std::int64_t end = 0;
  if (__builtin_add_overflow(static_cast<std::int64_t>(header_.size()), wanted_, &end)) {
    errno = EFBIG;
    throw_errno(file_.name(), "cannot set the size");
  }
  file_.set_size(end);
}

void NpyWriter::write_box(std::span<const Slice> box, const void* src) {
  check_box(shape_, box, "npy write_box");
  const std::int64_t bytes = file_.write_box(static_cast<std::int64_t>(header_.size()), shape_, box,
                                             itemsize(dtype_), src);
  bytes_written_.fetch_add(bytes, std::memory_order_relaxed);
}

void NpyWriter::commit() {
  const std::int64_t written = bytes_written_.load(std::memory_order_relaxed);
  if (written < wanted_) {
    throw Error(file_.name() + ": " + std::to_string(written) + " of the array's " +
                std::to_string(wanted_) + " bytes were written: it is not kept");
  }
  file_.commit();
}

void for_each_piece(std::span<const Slice> box, int itemsize, std::int64_t most_bytes,
                    const std::function<void(std::span<const Slice>, std::int64_t)>& see) {
  const int rank = static_cast<int>(box.size());
  std::int64_t total = itemsize;
  for (const Slice& s : box) total *= s.stop - s.start;
  if (total == 0) return;
  // A piece covers the dims after `split` whole, a range of dim `split`, and one index of each
  // earlier dim.
  int split = rank;
  std::int64_t inner = itemsize;  // bytes of one index of dim `split`
  while (split > 0 && inner * (box[split - 1].stop - box[split - 1].start) <= most_bytes) {
    --split;
    inner *= box[split].stop - box[split].start;
  }
  Slice piece[kMaxRank];
  for (int d = 0; d < rank; ++d) piece[d] = box[d];
  if (split == 0) return see({piece, box.size()}, 0);
  --split;
  const std::int64_t step = std::max<std::int64_t>(1, most_bytes / inner);
  for (int d = 0; d < split; ++d) piece[d] = {box[d].start, box[d].start + 1};
  for (std::int64_t offset = 0; offset < total;) {
    for (std::int64_t at = box[split].start; at < box[split].stop; at += step) {
      piece[split] = {at, std::min(at + step, box[split].stop)};
      see({piece, box.size()}, offset);
      offset += (piece[split].stop - piece[split].start) * inner;
    }
    for (int d = split - 1; d >= 0; --d) {
      ++piece[d].start;
      if (piece[d].stop++ < box[d].stop) break;
      piece[d] = {box[d].start, box[d].start + 1};
    }
  }
}

}  // namespace shmap::io
