// TrustedFolder: files that only this user can have written, for contents that the library trusts
// like its own code: compiled kernels, measured choices.
//
// All checks are made on open descriptors, never on a path that could change in between. The folder
// must belong to this user (effective id), and no other user may write to it; a last path component
// that is a symbolic link is not followed. A file must be regular, belong to this user, and not be
// writable by others; links are not followed, and a FIFO does not block. Such files need no
// signature; the reader must detect damage (core/base/disk_cache.h).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file_descriptor.h"

namespace shmap {

class TrustedFolder {
 public:
  enum class Make : bool { no, yes };
  // Make::yes creates the folder and its missing parents for this user alone (0700). Throws Error
  // with the reason where there is no such folder or it cannot be trusted.
  explicit TrustedFolder(const std::string& path, Make make = Make::yes);

  // The file of that name, open for reading; empty where it does not exist or cannot be trusted.
  FileDescriptor open(const std::string& name) const;
  // Reads the whole contents; returns false, and may have changed `contents`, where open() returns
  // no file, the file is larger than `most_bytes`, or reading fails.
  bool read(const std::string& name, std::int64_t most_bytes, std::string* contents) const;
  // Replaces the file atomically (core/base/draft_file.h), mode 0600: readers, also in other
  // processes, see the old contents or the new ones. Throws Error where the system refuses.
  void write(const std::string& name, std::string_view contents) const;
  // Removes the file; errors are ignored, here and in touch().
  void remove(const std::string& name) const noexcept;
  // Sets the file's time of last use to now.
  void touch(const std::string& name) const noexcept;

  struct Entry {
    std::string name;
    std::int64_t bytes = 0;
    std::int64_t used_ns = 0;  // time of the last write or touch
  };
  // The regular files whose names end with `suffix`, the least recently used first.
  std::vector<Entry> list(std::string_view suffix) const;

 private:
  FileDescriptor fd_;
};

}  // namespace shmap
