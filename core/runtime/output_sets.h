// OutputSets: the memory in which the graphs of a segment leave their results.
#pragma once
#include <cstddef>
#include <memory>
#include <unordered_set>
#include <vector>

#include "core/device/buffer.h"
#include "core/device/plan_memory.h"

namespace shmap {

// The buffers of one launch's results. Free while no other object owns any of them.
struct OutputSet {
  std::vector<BufferRef> buffers;
  bool is_free() const;
};

// Kept as long as the segment, kMost sets at most: a program whose results are all kept gains
// nothing from more.
class OutputSets {
 public:
  static constexpr std::size_t kMost = 8;

  // Whether there can be no further set and none is free.
  bool all_are_taken() const;
  // A free set with the buffers that leave the layout, made if necessary; null where kMost sets
  // were made and none of them serves. Throws OutOfMemory.
  std::shared_ptr<OutputSet> free_set(const MemoryLayout& layout);
  // Takes a free set out, the oldest one; null where none is free. What refers to it has to go.
  std::shared_ptr<OutputSet> take_free() noexcept;
  std::size_t size() const { return sets_.size(); }
  bool own(const Buffer* buffer) const { return buffers_.contains(buffer); }

 private:
  std::vector<std::shared_ptr<OutputSet>> sets_;
  std::unordered_set<const Buffer*> buffers_;  // of all sets
};

}  // namespace shmap
