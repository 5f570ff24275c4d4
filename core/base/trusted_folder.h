// TrustedFolder: files of this user's own, for what the library believes as it believes its own
// code: compiled kernels, measured choices.
//
// Everything is decided by open descriptors, never by a path that could change in between. The
// folder is this user's (effective id) and nobody else may write to it; a last component that is a
// symbolic link is not followed. A file is regular, this user's, and not writable by others; links
// are not followed, and a FIFO does not block. What nobody else could have written needs no
// signature; damage is for the reader to detect (core/base/disk_cache.h).
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
  // Make::yes creates the folder, and those above it that are missing, for this user alone (0700).
  // Throws Error, saying why, where there is no such folder or it is not to be trusted.
  explicit TrustedFolder(const std::string& path, Make make = Make::yes);

  // The file of that name, open for reading; none where there is none or it is not to be trusted.
  FileDescriptor open(const std::string& name) const;
  // The whole contents; false where open() gives none, it is larger than `most_bytes`, or it cannot
  // be read.
  bool read(const std::string& name, std::int64_t most_bytes, std::string* contents) const;
  // Puts the file there in one step (core/base/draft_file.h), mode 0600: readers, of other
  // processes too, see the old one or the new one. Throws Error where the system refuses.
  void write(const std::string& name, std::string_view contents) const;
  void remove(const std::string& name) const noexcept;
  // Notes that it was used now.
  void touch(const std::string& name) const noexcept;

  struct Entry {
    std::string name;
    std::int64_t bytes = 0;
    std::int64_t used_ns = 0;  // when it was written or touched
  };
  // The regular files whose names end like this, the one that was used the longest ago first.
  std::vector<Entry> list(std::string_view suffix) const;

 private:
  FileDescriptor fd_;
};

}  // namespace shmap
