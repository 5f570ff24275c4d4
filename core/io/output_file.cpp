#include "core/io/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "core/io/file_box.h"
#include "core/io/input_file.h"
#include "shmap/error.h"

namespace shmap::io {

namespace {

struct SplitPath {
  std::string folder, name;
};

SplitPath split_path(const std::string& path, const std::string& what) {
  const std::size_t slash = path.rfind('/');
  SplitPath place{slash == path.npos ? "."
                  : slash == 0       ? "/"
                                     : path.substr(0, slash),
                  slash == path.npos ? path : path.substr(slash + 1)};
  if (place.name.empty() || place.name == "." || place.name == "..")
    throw ValueError(what + ": the path names a folder: name a file in it");
  return place;
}

// The folder and the name of the file at that path, after following links.
SplitPath destination(std::string path, const std::string& what) {
  constexpr int kMostLinks = 40;
  for (int links = 0; links <= kMostLinks; ++links) {
    const SplitPath place = split_path(path, what);
    char target[PATH_MAX];
    const ssize_t n = readlink(path.c_str(), target, sizeof target);
    if (n < 0) return place;  // not a link; other errors show when the path is used
    if (n == sizeof target) break;
    const std::string to(target, static_cast<std::size_t>(n));
    path = to.front() == '/' ? to : place.folder + "/" + to;
  }
  errno = ELOOP;
  throw_errno(what, "cannot follow its links");
}

}  // namespace

// Follows links, so that the final rename replaces the file itself and not a link to it. A device
// or directory must not be replaced.
void OutputFile::open_folder(const std::string& path) {
  SplitPath place = destination(path, what_);
  name_ = std::move(place.name);
  folder_ = FileDescriptor(open(place.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_ && errno == EACCES)  // the folder may be writable but not readable
    folder_ = FileDescriptor(open(place.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) throw_errno(what_, "cannot open the folder '" + place.folder + "'");
}

OutputFile::OutputFile(const std::string& kind, const std::string& path, const std::string& draft)
    : what_(named_file(kind, path)) {
  open_folder(path);
  draft_.emplace(folder_.get(), draft, what_);
}

OutputFile::OutputFile(const std::string& kind, const std::string& path)
    : what_(named_file(kind, path)) {
  open_folder(path);
  struct stat info;
  const bool replaces = fstatat(folder_.get(), name_.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (!replaces && errno != ENOENT) throw_errno(what_, "cannot look at it");
  if (replaces && !S_ISREG(info.st_mode)) throw ValueError(what_ + ": no regular file");
  draft_.emplace(folder_.get(), replaces ? info.st_mode & 0777 : 0666, /*exact=*/replaces, what_);
}

void OutputFile::set_size(std::int64_t bytes) {
  if (ftruncate(draft_->fd(), static_cast<off_t>(bytes)) != 0)
    throw_errno(what_, "cannot set the size");
}

void OutputFile::write(std::int64_t offset, const void* src, std::int64_t count) {
  draft_->write(offset, static_cast<const std::byte*>(src), count);
}

std::int64_t OutputFile::write_box(std::int64_t base, const Shape& shape,
                                   std::span<const Slice> box, int itemsize, const void* src) {
  BoxRuns runs(shape, box, itemsize);
  if (runs.empty()) return 0;
  const auto* p = static_cast<const std::byte*>(src);
  std::int64_t bytes = 0;
  do {
    for (std::int64_t i = 0; i < runs.row_runs(); ++i, p += runs.run_bytes()) {
      draft_->write(base + runs.offset() + i * runs.stride(), p, runs.run_bytes());
      bytes += runs.run_bytes();
    }
  } while (runs.next());
  return bytes;
}

void OutputFile::commit() { draft_->commit(name_, /*durable=*/true); }

}  // namespace shmap::io
