// Buffer: a piece of memory of one memory space, with the events that guard it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/intrusive.h"
#include "core/device/event.h"

namespace shmap {

class MemorySpace;

namespace detail {
struct PlannedPart;  // of a buffer that a captured program plans with: core/device/plan_memory.h
}

// Owned through BufferRef. When the last owner goes, the memory returns to its space once its
// definition and all its uses are done; so a pending task holds plain addresses, not owners, and
// use_count() == 1 means that no array but one can name the buffer. (Before writing in place, wait
// for uses() too: earlier readers may still be running.)
// def(), add_use() and uses() are called under the backend's submit mutex, or by the sole owner.
class Buffer : public RefCounted {
 public:
  void* data() const noexcept { return data_; }
  std::int64_t bytes() const noexcept { return bytes_; }        // as asked for
  std::int64_t capacity() const noexcept { return capacity_; }  // as taken from the space
  MemorySpace& space() const noexcept { return *space_; }

  // The event of the task that writes it; assign it after enqueueing that task.
  Event& def() noexcept { return def_; }
  const Event& def() const noexcept { return def_; }
  // A task that reads it was enqueued. Finished uses are dropped as new ones come.
  void add_use(Event use);
  // The uses that may still be pending. Valid until the next add_use.
  std::span<const Event> uses() const noexcept {
    return {more_uses_.empty() ? few_uses_ : more_uses_.data(), n_uses_};
  }
  void clear_uses() noexcept;
  // True where it has neither a definition nor a use that was ever pending, or they are forgotten.
  bool untouched() const noexcept { return def_.record() == nullptr && n_uses_ == 0; }
  // True where def and all uses are done: the host may touch the memory.
  bool quiet() const noexcept { return untouched() || all_done(); }

  // True where those who hold `owners` of its owners may write to it in place: nobody else holds
  // one, and the memory is its space's own. Memory that was wrapped is somebody else's to read for
  // as long as it is wrapped, and never written to.
  bool owned_by(std::int32_t owners) const noexcept {
    return deleter_ == nullptr && use_count() == owners;
  }

  void dispose() noexcept;  // by Ref: returns the memory to the space

 private:
  friend class MemorySpace;
  friend struct detail::PlannedPart;
  static constexpr std::size_t kFewUses = 3;
  Buffer() = default;
  ~Buffer() = default;
  bool all_done() const noexcept;

  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t capacity_ = 0;
  MemorySpace* space_ = nullptr;
  Event def_;
  std::uint32_t n_uses_ = 0;
  std::uint16_t size_class_ = 0;
  bool live_ = false;  // handed out, or freed with work pending
  Event few_uses_[kFewUses];
  std::vector<Event> more_uses_;  // holds all of them once there are more than a few
  Buffer* next_ = nullptr;        // in a free or pending list
  Buffer* all_next_ = nullptr;    // every buffer of the space, for the text of OutOfMemory
  Buffer* all_prev_ = nullptr;
  void (*deleter_)(void* context) noexcept = nullptr;  // of foreign memory
  void* deleter_context_ = nullptr;
  detail::PlannedPart* planned_ = nullptr;  // null but for planned ones
};

using BufferRef = Ref<Buffer>;

}  // namespace shmap
