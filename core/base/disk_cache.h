// DiskCache: what took long to find out, on disk for the next process: text or bytes by a key.
//
// A file an entry, named by the SHA-256 of its key, with the whole key and a SHA-256 of everything
// inside: what belongs to another key is never taken, nor what was cut off or changed, nor what
// somebody else may have written (core/base/trusted_folder.h). Any number of processes may use one
// folder at once. It is a convenience: where there is no folder or no right to write, there is no
// cache, and no call throws for that. Of a folder that is there and not to be trusted it warns,
// once a process.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap {

class DiskCache {
 public:
  static constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;

  // `kind` ends the names of its files ("kernel"), and of its files alone no more than `most_bytes`
  // are kept: the ones that were used the longest ago go first. "": no cache.
  DiskCache(std::string kind, std::string folder, std::int64_t most_bytes = kMostBytes);
  // SHMAP_CACHE_DIR, or where unset shmap in $XDG_CACHE_HOME or ~/.cache. "" where it is "off" or
  // there is none.
  static std::string default_folder();

  const std::string& folder() const noexcept { return folder_; }  // "": there is none
  // What was stored under that key last, in `contents`; false where there is nothing to be trusted,
  // and `contents` is then unchanged. Takes no more memory than the file is long.
  bool load(std::string_view key, std::string* contents) const;
  void store(std::string_view key, std::string_view contents) const;

 private:
  std::string file_name(std::string_view key) const;

  std::string kind_, folder_;
  std::int64_t most_bytes_;
};

}  // namespace shmap
