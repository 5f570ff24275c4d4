#include "core/base/draft_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>

#include "shmap/error.h"

namespace shmap {

namespace {

constexpr std::string_view kPrefix = ".shmap-";
constexpr std::string_view kSuffix = ".draft";
constexpr std::size_t kRandomBytes = 10;
constexpr std::time_t kAbandonedSec = 60;
constexpr std::int64_t kMaxTransfer = std::int64_t{1} << 30;  // bytes of one system call
constexpr std::int64_t kBehind = std::int64_t{8} << 20;       // bytes written before the disk is
                                                              // told to start

std::string random_name() {
  unsigned char bytes[kRandomBytes];
  // getrandom returns up to 256 bytes completely or fails.
  while (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    if (errno != EINTR) throw_errno("random bytes for the name of a file", "cannot get them");
  }
  std::string name(kPrefix);
  for (const unsigned char b : bytes) {
    name += "0123456789abcdef"[b >> 4];
    name += "0123456789abcdef"[b & 15];
  }
  return name.append(kSuffix);
}

// Returns true if this process has the lock or the file system does not support locks.
bool lock(int fd) noexcept {
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    return errno != EWOULDBLOCK;
  }
  return true;
}

bool removed(int fd) noexcept {
  struct stat info;
  return fstat(fd, &info) == 0 && info.st_nlink == 0;
}

void remove_if_abandoned(int folder, const char* name) noexcept {
  const FileDescriptor fd(openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info;
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
      std::time(nullptr) - info.st_mtime < kAbandonedSec)
    return;
  // Unlinked under the lock: a process that has just created the file and not locked it yet will
  // choose another name.
  if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) unlinkat(folder, name, 0);
}

// A folder that cannot be read is left unchanged.
void remove_abandoned(int folder) noexcept {
  const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  DIR* const entries = fdopendir(fd);
  if (entries == nullptr) {
    close(fd);
    return;
  }
  while (const dirent* entry = readdir(entries)) {
    if (DraftFile::is_draft_name(entry->d_name)) remove_if_abandoned(folder, entry->d_name);
  }
  closedir(entries);
}

}  // namespace

bool DraftFile::is_draft_name(const char* name) noexcept {
  const std::string_view text(name);
  return text.size() == kPrefix.size() + 2 * kRandomBytes + kSuffix.size() &&
         text.starts_with(kPrefix) && text.ends_with(kSuffix);
}

DraftFile::DraftFile(int folder, mode_t mode, bool exact, std::string what)
    : folder_(folder), what_(std::move(what)) {
  remove_abandoned(folder);
  // Created with its final permissions at most, so that no other user can open it in between.
  for (;;) {
    std::string name = random_name();
    FileDescriptor fd(
        openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!fd && errno == EEXIST) continue;
    if (!fd) throw_errno(what_, "cannot create it");
    if (!lock(fd.get()) || removed(fd.get())) continue;  // removed as an abandoned draft
    name_ = std::move(name);
    fd_ = std::move(fd);
    break;
  }
  if (exact && fchmod(fd_.get(), mode) != 0) {
    const int error = errno;
    unlinkat(folder_, name_.c_str(), 0);
    errno = error;
    throw_errno(what_, "cannot set the mode");
  }
}

DraftFile::DraftFile(int folder, const std::string& name, std::string what)
    : folder_(folder), what_(std::move(what)) {
  fd_ = FileDescriptor(openat(folder, name.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd_) throw_errno(what_, "cannot open its draft '" + name + "', which another process made");
}

DraftFile::~DraftFile() {
  if (!name_.empty()) unlinkat(folder_, name_.c_str(), 0);
}

void DraftFile::write(std::int64_t offset, const std::byte* src, std::int64_t count) {
  while (count > 0) {
    const ssize_t n =
        pwrite(fd_.get(), src, static_cast<std::size_t>(std::min(count, kMaxTransfer)),
               static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(what_, "cannot write");
    src += n;
    offset += n;
    count -= n;
    // Lets the disk start early instead of with all bytes at the end. Only a hint: errors show when
    // the file is committed.
    if ((behind_ += n) < kBehind) continue;
    behind_ = 0;
    sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  }
}

void DraftFile::sync() {
  if (fsync(fd_.get()) != 0) throw_errno(what_, "cannot write");
}

void DraftFile::commit(const std::string& name, bool durable) {
  if (durable) sync();
  if (renameat(folder_, name_.c_str(), folder_, name.c_str()) != 0)
    throw_errno(what_, "cannot rename it");
  name_.clear();
  if (!durable) return;
  const FileDescriptor folder(openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A folder without read permission cannot be synced; some file systems do not support it.
  if (folder && fsync(folder.get()) != 0 && errno != EINVAL && errno != EROFS && errno != ENOSYS)
    throw_errno(what_, "it was written, but its folder cannot be synced");
}

}  // namespace shmap
