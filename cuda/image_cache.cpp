#include "cuda/image_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "core/base/env.h"

namespace shmap::cuda {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".kernel";

struct Header {
  char magic[8];
  std::uint64_t key_bytes, image_bytes, checksum;
};
constexpr char kMagic[8] = {'s', 'h', 'm', 'a', 'p', 'k', '1', '\n'};

std::uint64_t checksum(std::string_view key, std::string_view image) {
  return hash_text(image, hash_text(key));
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

std::string default_folder() {
  if (const std::string chosen = env::text(env::Var::cache_dir); !chosen.empty())
    return chosen == "off" ? std::string() : chosen;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string(cache) + "/shmap";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/shmap";
  return {};
}

}  // namespace

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return seed;
}

ImageCache::ImageCache() : ImageCache(default_folder()) {}
ImageCache::ImageCache(std::string folder, std::int64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {}

std::string ImageCache::path(const std::string& key) const {
  char name[40];
  std::snprintf(name, sizeof name, "/%016" PRIx64 "%s", hash_text(key), kSuffix);
  return folder_ + name;
}

bool ImageCache::load(const std::string& key, std::string* image) const {
  if (folder_.empty()) return false;
  const std::string from = path(key);
  const File file(std::fopen(from.c_str(), "rb"));
  if (!file) return false;
  Header header;
  if (std::fread(&header, sizeof header, 1, file.get()) != 1 ||
      std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key_bytes != key.size() ||
      header.image_bytes > static_cast<std::uint64_t>(kMostBytes))
    return false;
  std::string found(key.size(), '\0');
  image->resize(header.image_bytes);
  if (std::fread(found.data(), 1, found.size(), file.get()) != found.size() || found != key ||
      std::fread(image->data(), 1, image->size(), file.get()) != image->size() ||
      std::fgetc(file.get()) != EOF || header.checksum != checksum(found, *image))
    return false;
  std::error_code ignored;  // then it goes a little earlier than it need
  fs::last_write_time(from, fs::file_time_type::clock::now(), ignored);
  return true;
}

void ImageCache::store(const std::string& key, const std::string& image) const {
  if (folder_.empty()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return;
  make_room();
  static std::atomic<int> count{0};
  const std::string to = path(key), draft = to + "." + std::to_string(::getpid()) + "." +
                                            std::to_string(count.fetch_add(1)) + ".tmp";
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key_bytes = key.size();
  header.image_bytes = image.size();
  header.checksum = checksum(key, image);
  File file(std::fopen(draft.c_str(), "wb"));
  if (!file) return;
  bool written = std::fwrite(&header, sizeof header, 1, file.get()) == 1 &&
                 std::fwrite(key.data(), 1, key.size(), file.get()) == key.size() &&
                 std::fwrite(image.data(), 1, image.size(), file.get()) == image.size();
  written = std::fclose(file.release()) == 0 && written;
  if (written) fs::rename(draft, to, error);  // at once: nobody sees half of it
  if (!written || error) fs::remove(draft, error);
}

// Down to three quarters once there is too much; drafts of processes that died go with the rest.
void ImageCache::make_room() const {
  struct Entry {
    fs::file_time_type used;
    std::int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  std::int64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.find(kSuffix) == std::string::npos) continue;
    std::error_code gone;
    const auto bytes = static_cast<std::int64_t>(at->file_size(gone));
    const fs::file_time_type used = at->last_write_time(gone);
    if (gone) continue;
    entries.push_back({used, bytes, at->path()});
    total += bytes;
  }
  if (total <= most_bytes_) return;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= most_bytes_ / 4 * 3) return;
    if (fs::remove(entry.path, error)) total -= entry.bytes;
  }
}

}  // namespace shmap::cuda
