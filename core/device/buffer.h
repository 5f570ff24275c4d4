// Buffer: an allocation of a memory space, with the events that guard it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/intrusive.h"
#include "core/device/event.h"

namespace shmap {

class BufferChain;
class MemorySpace;

namespace detail {
struct CapturedBuffer;  // what only buffers of captured programs have: core/device/plan_memory.h
}

// A buffer is owned through BufferRefs. After the last owner is gone, the memory returns to its
// space when the buffer's definition and all its uses are done. A pending task therefore needs only
// the buffer's address and is not an owner, and use_count() == 1 means that only one array can name
// the buffer. (A task that writes to the buffer in place must wait for uses() too: earlier readers
// may still be running.) def(), add_use() and uses() are called with the backend's submit mutex
// held, or by the sole owner.
class Buffer : public RefCounted {
 public:
  void* data() const noexcept { return data_; }
  std::int64_t bytes() const noexcept { return bytes_; }        // as requested
  std::int64_t capacity() const noexcept { return capacity_; }  // as taken from the space
  MemorySpace& space() const noexcept { return *space_; }

  // The definition: the event of the task that writes the buffer. Assign it after enqueueing that
  // task.
  Event& def() noexcept { return def_; }
  const Event& def() const noexcept { return def_; }
  // Adds a use: the event of a task that reads the buffer and has been enqueued. When uses are
  // added, earlier ones that are done may be dropped.
  void add_use(Event use);
  // The uses that may be pending. The span is valid until the next add_use or clear_uses.
  std::span<const Event> uses() const noexcept {
    return {more_uses_.empty() ? few_uses_ : more_uses_.data(), n_uses_};
  }
  void clear_uses() noexcept;
  // Makes the definition a use, for a task that overwrites the whole buffer: the task waits for it,
  // and does not fail with it. Throws std::bad_alloc, without effect.
  void retire_definition();
  // Whether the buffer has no events: none was ever pending, or all have been dropped.
  bool untouched() const noexcept { return def_.record() == nullptr && n_uses_ == 0; }
  // Whether the definition and all uses are done, so that the host may access the memory.
  bool quiet() const noexcept { return untouched() || all_done(); }
  // Whether they are known to be done (Event::known_done), for memory that is given back.
  bool known_quiet() const noexcept { return untouched() || all_known_done(); }

  // Whether a task of the quiet buffer failed; its exception may be kept by the buffer alone.
  bool holds_failure() const noexcept;

  // Whether code that holds `owners` of the buffer's references may write to it in place: there are
  // no other references, and the memory belongs to the space. Wrapped memory (MemorySpace::wrap)
  // belongs to its provider and is never written to.
  bool owned_by(std::int32_t owners) const noexcept {
    return deleter_ == nullptr && use_count() == owners;
  }

  void dispose() noexcept;  // called by Ref: returns the memory to the space

 private:
  friend class BufferChain;
  friend class MemorySpace;
  friend struct detail::CapturedBuffer;
  static constexpr std::size_t kFewUses = 3;
  Buffer() = default;
  ~Buffer() = default;
  bool all_done() const noexcept;
  bool all_known_done() const noexcept;

  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t capacity_ = 0;
  MemorySpace* space_ = nullptr;
  Event def_;
  std::uint32_t n_uses_ = 0;
  std::uint16_t size_class_ = 0;
  bool live_ = false;  // in use, or freed while work on it is pending
  Event few_uses_[kFewUses];
  std::vector<Event> more_uses_;  // all uses, once there are more than kFewUses
  Buffer* next_ = nullptr;        // in a free or pending list
  Buffer* all_next_ = nullptr;    // in the list of all buffers of the space, for OutOfMemory's text
  Buffer* all_prev_ = nullptr;
  void (*deleter_)(void* context) noexcept = nullptr;  // of wrapped memory
  void* deleter_context_ = nullptr;
  detail::CapturedBuffer* captured_ = nullptr;  // null for ordinary buffers
};

using BufferRef = Ref<Buffer>;

// A list of buffers of one space and one size class, on which no work is pending and which nobody
// owns. A chain is filled from the space's cache at once (MemorySpace::take_cached), or collects
// buffers that its destructor gives back to the space at once.
class BufferChain {
 public:
  BufferChain() = default;
  BufferChain(const BufferChain&) = delete;
  BufferChain& operator=(const BufferChain&) = delete;
  ~BufferChain() {
    if (head_ != nullptr) give_back();
  }

  // Takes the first buffer out of the chain; null where none is left.
  BufferRef next() noexcept {
    Buffer* const first = head_;
    if (first == nullptr) return nullptr;
    head_ = first->next_;
    return BufferRef::first(first);
  }

  // Drops `owners` of the references of a buffer. If there are no others, the buffer is given back:
  // with the chain, or at once where it does not fit into the chain.
  void give_up(Buffer* buffer, std::int32_t owners) noexcept {
    if (!buffer->drop_refs(owners)) return;
    const bool fits = buffer->capacity_ != 0 && buffer->untouched() &&
                      (head_ == nullptr || (buffer->space_ == head_->space_ &&
                                            buffer->size_class_ == head_->size_class_));
    if (!fits) [[unlikely]]
      return buffer->dispose();
    buffer->next_ = nullptr;
    (head_ == nullptr ? head_ : last_->next_) = buffer;
    last_ = buffer;
  }

 private:
  friend class MemorySpace;
  void give_back() noexcept;

  Buffer* head_ = nullptr;  // linked by next_; the last one's is null
  Buffer* last_ = nullptr;  // where give_up() appends
};

}  // namespace shmap
