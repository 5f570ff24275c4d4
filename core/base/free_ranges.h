// FreeRanges: the free ranges of an address range from which memory is allocated by first fit.
#pragma once
#include <cstdint>
#include <iterator>
#include <map>

namespace shmap {

// Offsets and sizes are in bytes. Not thread-safe. If a call throws std::bad_alloc, take() has
// changed nothing, and give() has lost the range.
class FreeRanges {
 public:
  static constexpr std::int64_t kNone = -1;

  // Allocates `size` bytes at the lowest possible offset that is a multiple of `align`, and returns
  // that offset; kNone if no free range is large enough.
  std::int64_t take(std::int64_t size, std::int64_t align = 1) {
    for (auto it = ranges_.begin(); it != ranges_.end(); ++it) {
      const std::int64_t begin = it->first, end = begin + it->second;
      const std::int64_t at = (begin + align - 1) / align * align;
      if (at + size > end) continue;
      if (end > at + size) ranges_.emplace(at + size, end - at - size);
      if (at > begin)
        it->second = at - begin;
      else
        ranges_.erase(it);
      return at;
    }
    return kNone;
  }

  // Frees a range that is in use, and joins it with its free neighbours.
  void give(std::int64_t begin, std::int64_t size) {
    auto next = ranges_.lower_bound(begin);
    if (next != ranges_.end() && next->first == begin + size) {
      size += next->second;
      next = ranges_.erase(next);
    }
    if (next != ranges_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin) {
        before->second += size;
        return;
      }
    }
    ranges_.emplace(begin, size);
  }

 private:
  std::map<std::int64_t, std::int64_t> ranges_;  // offset -> bytes
};

}  // namespace shmap
