#include "core/io/npy_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
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

[[noreturn]] void throw_errno(const std::string& path, const char* what) {
  const int error = errno;
  char text[128] = "";
  // The GNU and the POSIX form of strerror_r differ in what they return; this is right for both.
  const auto described = strerror_r(error, text, sizeof text);
  std::string why;
  if constexpr (std::is_pointer_v<decltype(described)>)
    why = described;
  else
    why = text;
  throw Error("npy file '" + path + "': " + what + ": " + why);
}

void write_bytes(int fd, const std::string& path, std::int64_t offset, const std::byte* src,
                 std::int64_t count) {
  while (count > 0) {
    const ssize_t n = pwrite(fd, src, static_cast<std::size_t>(std::min(count, kMaxTransfer)),
                             static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path, "cannot write");
    src += n;
    offset += n;
    count -= n;
  }
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

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& o) noexcept {
  std::swap(fd_, o.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

NpyFile::NpyFile(std::string path) : path_(std::move(path)) {
  // Not to hang on a FIFO without a writer: it is refused below.
  fd_ = FileDescriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd_.get() < 0) throw_errno(path_, "cannot open");
  struct stat info;
  if (fstat(fd_.get(), &info) != 0) throw_errno(path_, "cannot look at");
  const std::string name = "npy file '" + path_ + "'";
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
    if (n < 0) throw_errno(path_, "cannot read");
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
  int long_dims = 0;
  for (std::int64_t e : header_.shape) long_dims += e > 1;
  if (header_.fortran_order && long_dims > 1)
    read_columns(box, out);
  else
    read_rows(header_.shape, box, out);
  if (header_.big_endian) swap_bytes(out, count, itemsize(header_.dtype));
  if (header_.dtype == DType::bool_)
    for (std::int64_t i = 0; i < count; ++i) out[i] = std::byte{out[i] != std::byte{0}};
}

void NpyFile::read_all(void* dst) const {
  Slice box[kMaxRank];
  for (std::size_t d = 0; d < header_.shape.size(); ++d) box[d] = {0, header_.shape[d]};
  read_box({box, header_.shape.size()}, dst);
}

NpyWriter::NpyWriter(std::string path, DType dtype, const Shape& shape)
    : path_(std::move(path)), dtype_(dtype), shape_(shape) {
  const std::string header = make_npy_header(dtype, shape);
  const std::int64_t bytes = checked_bytes(shape, itemsize(dtype));
  // What is renamed over the path must not replace a device, a directory, or a link to a file
  // elsewhere.
  struct stat info;
  mode_t mode = 0;
  if (stat(path_.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) throw ValueError("npy file '" + path_ + "': no regular file");
    mode = info.st_mode & 07777;
    const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path_.c_str(), nullptr),
                                                               &std::free);
    if (resolved) path_ = resolved.get();
  }
  static std::atomic<unsigned> serial{0};
  const std::string name = path_ + ".tmp." + std::to_string(getpid()) + "." +
                           std::to_string(serial.fetch_add(1, std::memory_order_relaxed));
  fd_ = FileDescriptor(open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (fd_.get() < 0) throw_errno(path_, "cannot create");
  temporary_ = name;
  try {
    if (mode != 0 && fchmod(fd_.get(), mode) != 0) throw_errno(path_, "cannot set the mode");
    write_bytes(fd_.get(), path_, 0, reinterpret_cast<const std::byte*>(header.data()),
                static_cast<std::int64_t>(header.size()));
    data_offset_ = static_cast<std::int64_t>(header.size());
    std::int64_t end = 0;
    if (__builtin_add_overflow(data_offset_, bytes, &end)) {
      errno = EFBIG;
      throw_errno(path_, "cannot set the size");
    }
    if (ftruncate(fd_.get(), static_cast<off_t>(end)) != 0)
      throw_errno(path_, "cannot set the size");
  } catch (...) {
    unlink(temporary_.c_str());
    throw;
  }
}

NpyWriter::~NpyWriter() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void NpyWriter::write_box(std::span<const Slice> box, const void* src) {
  check_box(shape_, box, "npy write_box");
  BoxRuns runs(shape_, box, itemsize(dtype_));
  if (runs.empty()) return;
  const auto* p = static_cast<const std::byte*>(src);
  std::int64_t bytes = 0;
  do {
    for (std::int64_t i = 0; i < runs.row_runs(); ++i, p += runs.run_bytes()) {
      write_bytes(fd_.get(), path_, data_offset_ + runs.offset() + i * runs.stride(), p,
                  runs.run_bytes());
      bytes += runs.run_bytes();
    }
  } while (runs.next());
  bytes_written_.fetch_add(bytes, std::memory_order_relaxed);
}

void NpyWriter::commit() {
  const std::int64_t wanted = checked_bytes(shape_, itemsize(dtype_));
  const std::int64_t written = bytes_written_.load(std::memory_order_relaxed);
  if (written < wanted) {
    throw Error("npy file '" + path_ + "': " + std::to_string(written) + " of the array's " +
                std::to_string(wanted) + " bytes were written: it is not kept");
  }
  if (fsync(fd_.get()) != 0) throw_errno(path_, "cannot write");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) throw_errno(path_, "cannot rename");
  temporary_.clear();
}

void write_npy(const std::string& path, DType dtype, const Shape& shape, const void* data) {
  NpyWriter writer(path, dtype, shape);
  Slice box[kMaxRank];
  for (std::size_t d = 0; d < shape.size(); ++d) box[d] = {0, shape[d]};
  writer.write_box({box, shape.size()}, data);
  writer.commit();
}

}  // namespace shmap::io
