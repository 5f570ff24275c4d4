#include "core/io/checkpoint_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string_view>

#include "core/base/draft_file.h"
#include "core/io/input_file.h"
#include "shmap/error.h"

namespace shmap::io {

namespace {

constexpr std::string_view kPrefix = "checkpoint-", kSuffix = ".shmap";
constexpr std::size_t kDigits = 8;

// The number in a checkpoint's file name; 0 for other names.
std::int64_t number_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return 0;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(std::min(name.size(), kSuffix.size()));
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), n);
  if (error != std::errc() || end != name.data() + name.size() || n < 1) return 0;
  return CheckpointFolder::file_name(n).size() == kPrefix.size() + name.size() + kSuffix.size() ? n
                                                                                                : 0;
}

}  // namespace

std::string CheckpointFolder::file_name(std::int64_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return std::string(kPrefix) + digits + std::string(kSuffix);
}

bool CheckpointFolder::is_folder(const std::string& path) {
  named_file("folder", path);  // throws for an invalid path
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

CheckpointFolder::CheckpointFolder(const std::string& path, Make make)
    : what_(named_file("folder", path)) {
  if (make == Make::yes) {
    for (std::size_t end = path.find('/', 1); end != path.npos; end = path.find('/', end + 1))
      mkdir(path.substr(0, end).c_str(), 0777);
    if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) throw_errno(what_, "cannot make it");
  }
  fd_ = FileDescriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd_) throw_errno(what_, "cannot open it");
}

std::vector<std::string> CheckpointFolder::entries() const {
  const int fd = openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_errno(what_, "cannot read it");
  const std::unique_ptr<DIR, int (*)(DIR*)> all(fdopendir(fd), closedir);
  if (all == nullptr) {
    close(fd);
    throw_errno(what_, "cannot read it");
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(all.get())) names.emplace_back(entry->d_name);
  return names;
}

std::vector<std::int64_t> CheckpointFolder::numbers() const {
  std::vector<std::int64_t> out;
  for (const std::string& name : entries())
    if (const std::int64_t n = number_of(name); n > 0) out.push_back(n);
  std::sort(out.begin(), out.end());
  return out;
}

bool CheckpointFolder::has_drafts() const {
  const std::vector<std::string> names = entries();
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return DraftFile::is_draft_name(name.c_str());
  });
}

void CheckpointFolder::keep(const std::vector<std::int64_t>& numbers, int count) const {
  const std::size_t kept = std::min(numbers.size(), static_cast<std::size_t>(std::max(0, count)));
  for (std::size_t i = 0; i + kept < numbers.size(); ++i) {
    const std::string name = file_name(numbers[i]);
    if (unlinkat(fd_.get(), name.c_str(), 0) != 0 && errno != ENOENT)
      throw_errno(what_, "the new checkpoint is there, but '" + name + "' cannot be removed");
  }
}

}  // namespace shmap::io
