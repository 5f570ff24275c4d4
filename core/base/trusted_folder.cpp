#include "core/base/trusted_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "core/base/draft_file.h"
#include "shmap/error.h"

namespace shmap {

namespace {

constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

std::string octal(mode_t mode) {
  std::string out;
  for (int shift = 9; shift >= 0; shift -= 3) out += static_cast<char>('0' + (mode >> shift & 7));
  return out;
}

// mkdir -p, for this user alone. Errors are ignored: opening the folder will report them.
void make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    mkdir(path.substr(0, end).c_str(), 0700);
  mkdir(path.c_str(), 0700);
}

}  // namespace

TrustedFolder::TrustedFolder(const std::string& given, Make make) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();  // "link/" would follow the link
  if (make == Make::yes) make_folders(path);
  fd_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const std::string what = "folder '" + path + "'";
  if (!fd_ && (errno == ENOTDIR || errno == ELOOP)) {
    throw Error(what + ": it is not a folder, or it is a symbolic link: name the folder itself");
  }
  if (!fd_) throw_errno(what, "cannot open it");
  struct stat info;
  if (fstat(fd_.get(), &info) != 0) throw_errno(what, "cannot look at it");
  if (info.st_uid != geteuid()) {
    throw Error(what + ": it belongs to user " + std::to_string(info.st_uid) +
                ", and this process runs as user " + std::to_string(geteuid()) +
                ": name a folder of this user's");
  }
  if ((info.st_mode & kOthersMayWrite) != 0) {
    throw Error(what + ": others may write to it (mode " + octal(info.st_mode & 07777) +
                "): chmod 700 makes it this user's alone");
  }
}

FileDescriptor TrustedFolder::open(const std::string& name) const {
  FileDescriptor fd(
      openat(fd_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info;
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
      (info.st_mode & kOthersMayWrite) != 0)
    return {};
  return fd;
}

bool TrustedFolder::read(const std::string& name, std::int64_t most_bytes,
                         std::string* contents) const {
  const FileDescriptor fd = open(name);
  struct stat info;
  if (!fd || fstat(fd.get(), &info) != 0 || info.st_size > most_bytes) return false;
  contents->resize(static_cast<std::size_t>(info.st_size));
  std::size_t at = 0;
  while (at < contents->size()) {
    const ssize_t n =
        pread(fd.get(), contents->data() + at, contents->size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

void TrustedFolder::write(const std::string& name, std::string_view contents) const {
  DraftFile draft(fd_.get(), 0600, /*exact=*/false, "file '" + name + "' of the cache");
  draft.write(0, reinterpret_cast<const std::byte*>(contents.data()),
              static_cast<std::int64_t>(contents.size()));
  draft.commit(name, /*durable=*/false);
}

void TrustedFolder::remove(const std::string& name) const noexcept {
  unlinkat(fd_.get(), name.c_str(), 0);
}

void TrustedFolder::touch(const std::string& name) const noexcept {
  utimensat(fd_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

std::vector<TrustedFolder::Entry> TrustedFolder::list(std::string_view suffix) const {
  std::vector<Entry> out;
  const int fd = openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return out;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(fd), closedir);
  if (entries == nullptr) {
    close(fd);
    return out;
  }
  while (const dirent* entry = readdir(entries.get())) {
    struct stat info;
    if (std::string_view(entry->d_name).ends_with(suffix) &&
        fstatat(fd_.get(), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode))
      out.push_back({entry->d_name, info.st_size,
                     info.st_mtim.tv_sec * std::int64_t{1'000'000'000} + info.st_mtim.tv_nsec});
  }
  std::sort(out.begin(), out.end(),
            [](const Entry& a, const Entry& b) { return a.used_ns < b.used_ns; });
  return out;
}

}  // namespace shmap
