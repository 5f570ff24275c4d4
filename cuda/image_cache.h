// ImageCache: compiled kernels on disk, for the next process.
//
// A file a kernel, named by a hash of its key, with the whole key inside: what was compiled from
// something else, by something else or for something else is never taken, nor what was cut off or
// changed. Any number of processes may use one folder at once. It is a convenience and never fails:
// where there is no folder or no right to write, there is no cache.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap::cuda {

// FNV-1a; `seed`: of what stands before.
std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 14695981039346656037u);

class ImageCache {
 public:
  // Files of more than this are not kept; the ones that were used the longest ago go first.
  static constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;

  // SHMAP_CACHE_DIR, or where unset shmap in $XDG_CACHE_HOME or ~/.cache. "off": no cache.
  ImageCache();
  explicit ImageCache(std::string folder, std::int64_t most_bytes = kMostBytes);

  const std::string& folder() const { return folder_; }  // "": there is none
  bool load(const std::string& key, std::string* image) const;
  void store(const std::string& key, const std::string& image) const;

 private:
  std::string path(const std::string& key) const;
  void make_room() const;

  std::string folder_;
  std::int64_t most_bytes_ = kMostBytes;
};

}  // namespace shmap::cuda
