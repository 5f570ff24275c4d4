// DiskCache keeps results that took long to compute on disk for later processes: text or bytes, by
// a key.
//
// Each entry is a file, named by the SHA-256 of its key, which contains the whole key and a SHA-256
// of the whole file. The cache never returns the entry of another key, a truncated or changed file,
// or a file that another user may have written (core/base/trusted_folder.h). Any number of
// processes may use one folder at once. If there is no folder or no permission to write, nothing is
// cached, and no call throws for that reason. For a folder that exists but cannot be trusted, the
// process warns once.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap {

class DiskCache {
 public:
  static constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;

  // `kind` is the extension of the cache's file names ("kernel"). Files of that kind use at most
  // `most_bytes`: the least recently used ones are removed first, and an entry that is larger alone
  // is not stored. folder "": no cache.
  DiskCache(std::string kind, std::string folder, std::int64_t most_bytes = kMostBytes);
  // SHMAP_CACHE_DIR or, if unset, shmap in $XDG_CACHE_HOME or ~/.cache. "" where the variable is
  // "off" or none of these folders is defined.
  static std::string default_folder();

  const std::string& folder() const noexcept { return folder_; }  // "": no cache
  // Sets `contents` to the contents that were last stored under that key and returns true; returns
  // false, and leaves `contents` unchanged, if no trusted entry exists. Uses no more memory than
  // the file's size.
  bool load(std::string_view key, std::string* contents) const;
  // Stores the contents under the key, in place of an earlier entry.
  void store(std::string_view key, std::string_view contents) const;

 private:
  std::string file_name(std::string_view key) const;

  std::string kind_, folder_;
  std::int64_t most_bytes_;
};

}  // namespace shmap
