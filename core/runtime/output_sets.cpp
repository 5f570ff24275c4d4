#include "core/runtime/output_sets.h"

#include <algorithm>
#include <utility>

#include "core/device/memory_space.h"

namespace shmap {

bool OutputSet::is_free() const {
  return std::ranges::all_of(buffers, [](const BufferRef& b) { return b.use_count() == 1; });
}

bool OutputSets::all_are_taken() const {
  return sets_.size() >= kMost &&
         std::ranges::none_of(sets_, [](const auto& set) { return set->is_free(); });
}

std::shared_ptr<OutputSet> OutputSets::free_set(const MemoryLayout& layout) {
  const std::vector<std::int64_t> wanted = layout.escaping();
  for (const auto& set : sets_) {
    if (set->buffers.size() != wanted.size() || !set->is_free()) continue;
    bool fits = true;
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      const MemoryLayout::Allocation& place = layout.places[static_cast<std::size_t>(wanted[k])];
      fits = fits && &set->buffers[k]->space() == place.space &&
             set->buffers[k]->bytes() == place.bytes;
    }
    if (fits) return set;
  }
  if (sets_.size() >= kMost) return nullptr;
  auto set = std::make_shared<OutputSet>();
  for (const std::int64_t k : wanted) {
    const MemoryLayout::Allocation& place = layout.places[static_cast<std::size_t>(k)];
    set->buffers.push_back(place.space->allocate(place.bytes));
  }
  sets_.push_back(set);
  for (const BufferRef& b : set->buffers) buffers_.insert(b.get());
  return set;
}

std::shared_ptr<OutputSet> OutputSets::take_free() noexcept {
  const auto it = std::ranges::find_if(sets_, [](const auto& set) { return set->is_free(); });
  if (it == sets_.end()) return nullptr;
  const std::shared_ptr<OutputSet> set = std::move(*it);
  sets_.erase(it);
  for (const BufferRef& b : set->buffers) buffers_.erase(b.get());
  return set;
}

}  // namespace shmap
