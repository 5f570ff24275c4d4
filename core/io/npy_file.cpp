#include "core/io/npy_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/fault.h"
#include "core/io/file_box.h"
#include "shmap/error.h"

namespace shmap::io {

static_assert(std::endian::native == std::endian::little, "npy files are read as little endian");

namespace {

constexpr std::int64_t kStagingBytes = std::int64_t{4} << 20;
constexpr std::int64_t kShortRun = 512;  // bytes; shorter runs are read with the gaps between them
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kMaxTransfer = std::int64_t{1} << 30;  // of one system call

// "npy file 'x.npy'". A path with a null character names another file to the system than to whoever
// reads it here.
std::string named(const std::string& path) {
  const std::size_t end = path.find('\0');
  if (end == path.npos) return "npy file '" + path + "'";
  throw ValueError("npy file '" + path.substr(0, end) + "\\0…': the path has a null character at " +
                   std::to_string(end) + ": wanted is one without");
}

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

NpyFile::NpyFile(std::string path) : path_(std::move(path)) {
  const std::string name = named(path_);
  // Not to hang on a FIFO without a writer: it is refused below.
  fd_ = FileDescriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd_) throw_errno(name, "cannot open it");
  struct stat info;
  if (fstat(fd_.get(), &info) != 0) throw_errno(name, "cannot look at it");
  if (!S_ISREG(info.st_mode)) throw ValueError(name + ": no regular file");
  const std::int64_t size = info.st_size;
  std::vector<std::byte> prefix(static_cast<std::size_t>(std::min(size, kNpyMaxPrefix)));
  read_bytes(0, prefix.data(), static_cast<std::int64_t>(prefix.size()));
  bytes_read_.store(0, std::memory_order_relaxed);
  header_ = parse_npy_header(prefix, size, name);
}

void NpyFile::read_bytes(std::int64_t offset, std::byte* dst, std::int64_t count) const {
  bytes_read_.fetch_add(count, std::memory_order_relaxed);
  // What a file that shrank still has.
  std::int64_t left = fault::point("read") == fault::Action::short_read ? count / 2 : count;
  while (count > 0) {
    const ssize_t n = pread(fd_.get(), dst, static_cast<std::size_t>(std::min(left, kMaxTransfer)),
                            static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(named(path_), "cannot read");
    if (n == 0) {
      throw Error("npy file '" + path_ + "': it ends at byte " + std::to_string(offset) + ", and " +
                  std::to_string(count) +
                  " more bytes are wanted: it became shorter since it was opened");
    }
    dst += n;
    offset += n;
    count -= n;
    left -= n;
  }
}

// `shape` and `box` with the slowest dim first; dst is packed in the same order.
void NpyFile::read_rows(const Shape& shape, std::span<const Slice> box, std::byte* dst) const {
  BoxRuns runs(shape, box, itemsize(header_.dtype));
  if (runs.empty()) return;
  const std::int64_t run = runs.run_bytes(), stride = runs.stride(), count = runs.row_runs();
  const bool with_gaps = count > 1 && run < kShortRun && stride - run < kPage;
  // Runs that one staging buffer takes, gaps included.
  const std::int64_t batch =
      with_gaps ? std::min(count, 1 + (kStagingBytes / 16 - run) / stride) : 1;
  std::unique_ptr<std::byte[]> staging;
  if (with_gaps) staging.reset(new std::byte[static_cast<std::size_t>((batch - 1) * stride + run)]);
  do {
    const std::int64_t base = header_.data_offset + runs.offset();
    for (std::int64_t i = 0; i < count; i += batch) {
      if (!with_gaps) {
        read_bytes(base + i * stride, dst, run);
        dst += run;
        continue;
      }
      const std::int64_t n = std::min(batch, count - i);
      read_bytes(base + i * stride, staging.get(), (n - 1) * stride + run);
      for (std::int64_t k = 0; k < n; ++k, dst += run)
        std::memcpy(dst, staging.get() + k * stride, static_cast<std::size_t>(run));
    }
  } while (runs.next());
}

// A box of a file in Fortran order: parts of it that fit in the staging buffer are read as the file
// has them, and copied to their places.
void NpyFile::read_columns(std::span<const Slice> box, std::byte* dst) const {
  const int rank = header_.shape.rank();
  const int size = itemsize(header_.dtype);
  const Shape file_shape = reversed(header_.shape);
  const Shape extents = box_shape(box);
  std::int64_t dst_strides[kMaxRank];
  std::int64_t total = 1;
  for (int d = rank; d-- > 0; total *= extents[d]) dst_strides[d] = total;
  if (total == 0) return;

  // A part takes dims 0 … split-1 whole, `step` indices of dim `split`, and one of those after.
  const std::int64_t limit = kStagingBytes / size;
  int split = 0;
  std::int64_t inner = 1;
  while (split < rank - 1 && inner * extents[split] <= limit) inner *= extents[split++];
  const std::int64_t step = std::clamp<std::int64_t>(limit / inner, 1, extents[split]);
  const std::unique_ptr<std::byte[]> staging(
      new std::byte[static_cast<std::size_t>(inner * step * size)]);

  std::int64_t index[kMaxRank] = {};  // of the part, from the box's corner
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
    read_rows(file_shape, {file_box, static_cast<std::size_t>(rank)}, staging.get());
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
    read_rows(header_.shape, box, out);
  else
    read_columns(box, out);
  if (header_.big_endian) swap_bytes(out, count, itemsize(header_.dtype));
  if (header_.dtype == DType::bool_)
    for (std::int64_t i = 0; i < count; ++i) out[i] = std::byte{out[i] != std::byte{0}};
}

void NpyFile::read_all(void* dst) const {
  Slice box[kMaxRank];
  for (std::size_t d = 0; d < header_.shape.size(); ++d) box[d] = {0, header_.shape[d]};
  read_box({box, header_.shape.size()}, dst);
}

bool NpyFile::reads_rows() const {
  int long_dims = 0;
  for (std::int64_t e : header_.shape) long_dims += e > 1;
  return !header_.fortran_order || long_dims <= 1;
}

namespace {

struct Place {
  std::string folder, name;
};

Place place_of(const std::string& path, const std::string& what) {
  const std::size_t slash = path.rfind('/');
  Place place{slash == path.npos ? "."
              : slash == 0       ? "/"
                                 : path.substr(0, slash),
              slash == path.npos ? path : path.substr(slash + 1)};
  if (place.name.empty() || place.name == "." || place.name == "..")
    throw ValueError(what + ": the path names a folder, and wanted is a file");
  return place;
}

// Where the file of that path is or will be: what links at its end point to.
Place destination(std::string path, const std::string& what) {
  constexpr int kMostLinks = 40;
  for (int links = 0; links <= kMostLinks; ++links) {
    const Place place = place_of(path, what);
    char target[PATH_MAX];
    const ssize_t n = readlink(path.c_str(), target, sizeof target);
    if (n < 0) return place;  // no link; what else is wrong with it shows when it is used
    if (n == sizeof target) break;
    const std::string to(target, static_cast<std::size_t>(n));
    path = to.front() == '/' ? to : place.folder + "/" + to;
  }
  errno = ELOOP;
  throw_errno(what, "cannot follow its links");
}

}  // namespace

NpyWriter::NpyWriter(std::string path, DType dtype, const Shape& shape)
    : what_(named(path)), dtype_(dtype), shape_(shape) {
  const std::string header = make_npy_header(dtype, shape);
  const std::int64_t bytes = checked_bytes(shape, itemsize(dtype));
  // What is renamed over the path must not replace a device, a directory, or a link to a file
  // elsewhere.
  Place place = destination(path, what_);
  name_ = std::move(place.name);
  folder_ = FileDescriptor(open(place.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_ && errno == EACCES)  // it may be written to all the same
    folder_ = FileDescriptor(open(place.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) throw_errno(what_, "cannot open the folder '" + place.folder + "'");
  struct stat info;
  const bool replaces = fstatat(folder_.get(), name_.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (!replaces && errno != ENOENT) throw_errno(what_, "cannot look at it");
  if (replaces && !S_ISREG(info.st_mode)) throw ValueError(what_ + ": no regular file");
  draft_.emplace(folder_.get(), replaces ? info.st_mode & 0777 : 0666, /*exact=*/replaces, what_);
  data_offset_ = static_cast<std::int64_t>(header.size());
  draft_->write(0, reinterpret_cast<const std::byte*>(header.data()), data_offset_);
  std::int64_t end = 0;
  if (__builtin_add_overflow(data_offset_, bytes, &end)) {
    errno = EFBIG;
    throw_errno(what_, "cannot set the size");
  }
  if (ftruncate(draft_->fd(), static_cast<off_t>(end)) != 0)
    throw_errno(what_, "cannot set the size");
}

void NpyWriter::write_box(std::span<const Slice> box, const void* src) {
  check_box(shape_, box, "npy write_box");
  BoxRuns runs(shape_, box, itemsize(dtype_));
  if (runs.empty()) return;
  const auto* p = static_cast<const std::byte*>(src);
  std::int64_t bytes = 0;
  do {
    for (std::int64_t i = 0; i < runs.row_runs(); ++i, p += runs.run_bytes()) {
      draft_->write(data_offset_ + runs.offset() + i * runs.stride(), p, runs.run_bytes());
      bytes += runs.run_bytes();
    }
  } while (runs.next());
  bytes_written_.fetch_add(bytes, std::memory_order_relaxed);
}

void NpyWriter::commit() {
  const std::int64_t wanted = checked_bytes(shape_, itemsize(dtype_));
  const std::int64_t written = bytes_written_.load(std::memory_order_relaxed);
  if (written < wanted) {
    throw Error(what_ + ": " + std::to_string(written) + " of the array's " +
                std::to_string(wanted) + " bytes were written: it is not kept");
  }
  draft_->commit(name_, /*durable=*/true);
}

void for_each_piece(std::span<const Slice> box, int itemsize, std::int64_t most_bytes,
                    const std::function<void(std::span<const Slice>, std::int64_t)>& see) {
  const int rank = static_cast<int>(box.size());
  std::int64_t total = itemsize;
  for (const Slice& s : box) total *= s.stop - s.start;
  if (total == 0) return;
  // A piece takes the dims after `split` whole, some indices of it, and one of each before.
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

void write_npy(const std::string& path, DType dtype, const Shape& shape, const void* data) {
  NpyWriter writer(path, dtype, shape);
  Slice box[kMaxRank];
  for (std::size_t d = 0; d < shape.size(); ++d) box[d] = {0, shape[d]};
  writer.write_box({box, shape.size()}, data);
  writer.commit();
}

}  // namespace shmap::io
