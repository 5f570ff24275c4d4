#include "core/io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "core/base/fault.h"
#include "core/io/file_box.h"
#include "shmap/error.h"

namespace shmap::io {

namespace {
constexpr std::int64_t kStagingBytes = std::int64_t{256} << 10;
constexpr std::int64_t kShortRun = 512;  // bytes; shorter runs are read with the gaps between them
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kMaxTransfer = std::int64_t{1} << 30;  // most bytes of one system call
}  // namespace

std::string named_file(const std::string& kind, const std::string& path) {
  const std::size_t end = path.find('\0');
  if (end == path.npos) return kind + " '" + path + "'";
  throw ValueError(kind + " '" + path.substr(0, end) + "\\0…': the path has a null character at " +
                   std::to_string(end) + ", which no path may have");
}

InputFile::InputFile(std::string kind, std::string path)
    : path_(std::move(path)), name_(named_file(kind, path_)) {
  // O_NONBLOCK: opening a FIFO without a writer must not block. FIFOs are refused below.
  fd_ = FileDescriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd_) throw_errno(name_, "cannot open it");
  struct stat info;
  if (fstat(fd_.get(), &info) != 0) throw_errno(name_, "cannot look at it");
  if (!S_ISREG(info.st_mode)) throw ValueError(name_ + ": no regular file");
  size_ = info.st_size;
}

void InputFile::read(std::int64_t offset, std::byte* dst, std::int64_t count) const {
  bytes_read_.fetch_add(count, std::memory_order_relaxed);
  if (contents_) {
    if (count > 0) std::memcpy(dst, contents_.get() + offset, static_cast<std::size_t>(count));
    return;
  }
  // Simulates a file that has shrunk.
  std::int64_t left = fault::point("read") == fault::Action::short_read ? count / 2 : count;
  while (count > 0) {
    const ssize_t n = pread(fd_.get(), dst, static_cast<std::size_t>(std::min(left, kMaxTransfer)),
                            static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(name_, "cannot read");
    if (n == 0) {
      throw Error(name_ + ": it ends at byte " + std::to_string(offset) + ", and " +
                  std::to_string(count) +
                  " more bytes are wanted: it became shorter since it was opened");
    }
    dst += n;
    offset += n;
    count -= n;
    left -= n;
  }
}

void InputFile::read_box(std::int64_t base, const Shape& shape, std::span<const Slice> box,
                         int itemsize, std::byte* dst) const {
  BoxRuns runs(shape, box, itemsize);
  if (runs.empty()) return;
  const std::int64_t run = runs.run_bytes(), stride = runs.stride(), count = runs.row_runs();
  const bool with_gaps = count > 1 && run < kShortRun && stride - run < kPage;
  // As many runs as the staging buffer holds, gaps included.
  const std::int64_t batch = with_gaps ? std::min(count, 1 + (kStagingBytes - run) / stride) : 1;
  std::unique_ptr<std::byte[]> staging;
  if (with_gaps) staging.reset(new std::byte[static_cast<std::size_t>((batch - 1) * stride + run)]);
  do {
    const std::int64_t first = base + runs.offset();
    for (std::int64_t i = 0; i < count; i += batch) {
      if (!with_gaps) {
        read(first + i * stride, dst, run);
        dst += run;
        continue;
      }
      const std::int64_t n = std::min(batch, count - i);
      read(first + i * stride, staging.get(), (n - 1) * stride + run);
      for (std::int64_t k = 0; k < n; ++k, dst += run)
        std::memcpy(dst, staging.get() + k * stride, static_cast<std::size_t>(run));
    }
  } while (runs.next());
}

}  // namespace shmap::io
