#include "core/base/disk_cache.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "core/base/env.h"
#include "core/base/sha256.h"
#include "core/base/trusted_folder.h"
#include "core/base/warning.h"
#include "shmap/error.h"

namespace shmap {

namespace {

// The layout of a file: this header, the key, the contents.
struct Header {
  char magic[8];
  std::uint64_t key_bytes, content_bytes;
  Sha256::Digest digest;  // of the whole file, computed with zeros here
};
constexpr char kMagic[8] = {'s', 'h', 'm', 'a', 'p', 'c', '2', '\n'};

std::string_view bytes_of(const Header& header) {
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

Header header_of(std::string_view key, std::string_view contents) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key_bytes = key.size();
  header.content_bytes = contents.size();
  header.digest = Sha256().add(bytes_of(header)).add(key).add(contents).digest();
  return header;
}

void warn_once(const std::string& folder, const std::string& why) {
  static std::mutex mutex;
  static auto* warned = new std::set<std::string>;  // never destroyed: used at exit too
  std::lock_guard lock(mutex);
  if (warned->insert(folder).second)
    warn("nothing is kept on disk for the next process: " + why +
         ". Name another folder with SHMAP_CACHE_DIR, or turn this cache off with "
         "SHMAP_CACHE_DIR=off");
}

bool exists(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder, ignored);
}

}  // namespace

std::string DiskCache::default_folder() {
  if (const std::string chosen = env::text(env::Var::cache_dir); !chosen.empty())
    return chosen == "off" ? std::string() : chosen;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string(cache) + "/shmap";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/shmap";
  return {};
}

DiskCache::DiskCache(std::string kind, std::string folder, std::int64_t most_bytes)
    : kind_(std::move(kind)), folder_(std::move(folder)), most_bytes_(most_bytes) {}

std::string DiskCache::file_name(std::string_view key) const {
  return sha256_hex(key) + "." + kind_;
}

bool DiskCache::load(std::string_view key, std::string* contents) const {
  if (folder_.empty() || !exists(folder_)) return false;
  try {
    const TrustedFolder folder(folder_, TrustedFolder::Make::no);
    const std::string name = file_name(key);
    std::string file;
    if (!folder.read(name, most_bytes_, &file) || file.size() < sizeof(Header) + key.size())
      return false;
    const std::string_view found(file);
    const std::string_view body = found.substr(sizeof(Header));
    const Header wanted = header_of(key, body.substr(key.size()));
    if (found.substr(0, sizeof(Header)) != bytes_of(wanted) || body.substr(0, key.size()) != key)
      return false;
    folder.touch(name);
    file.erase(0, sizeof(Header) + key.size());
    *contents = std::move(file);
    return true;
  } catch (const Error& e) {
    warn_once(folder_, e.what());
    return false;
  }
}

void DiskCache::store(std::string_view key, std::string_view contents) const {
  if (folder_.empty()) return;
  try {
    const TrustedFolder folder(folder_);
    const Header header = header_of(key, contents);
    std::string file(bytes_of(header));
    file.append(key).append(contents);
    std::int64_t total = static_cast<std::int64_t>(file.size());
    if (total > most_bytes_) return;
    const auto entries = folder.list("." + kind_);
    for (const auto& entry : entries) total += entry.bytes;
    if (total > most_bytes_) {  // down to three quarters of the limit
      for (const auto& entry : entries) {
        if (total <= most_bytes_ / 4 * 3) break;
        folder.remove(entry.name);
        total -= entry.bytes;
      }
    }
    folder.write(file_name(key), file);
  } catch (const Error& e) {
    // A read-only home folder needs no warning; a folder that other users may write to does.
    if (exists(folder_)) warn_once(folder_, e.what());
  }
}

}  // namespace shmap
