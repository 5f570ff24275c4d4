// MemorySpace: the list of buffers that were freed while work on them was pending.
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "core/device/fork_guard.h"
#include "core/device/memory_space.h"

namespace shmap {

Buffer* MemorySpace::take_pending(int first_class, int last_class, bool any) {
  constexpr int kLooks = 64;  // the list may be long, and fitting buffers are among the oldest
  const auto fits = [&](const Buffer& b) {
    if (b.capacity_ == 0 || b.size_class_ < first_class || b.size_class_ > last_class) return false;
    const auto computes = [](const Event& e) {
      return e.record() == nullptr || e.record()->on_compute_stream();
    };
    return any || (computes(b.def_) && std::ranges::all_of(b.uses(), computes));
  };
  Buffer* taken = nullptr;
  {
    std::lock_guard lock(lock_);
    Buffer* before = nullptr;
    Buffer* buffer = pending_head_;
    for (int looks = 0; buffer != nullptr && !fits(*buffer); ++looks) {
      if (looks == kLooks) return nullptr;
      before = buffer;
      buffer = buffer->next_;
    }
    if (buffer == nullptr) return nullptr;
    (before == nullptr ? pending_head_ : before->next_) = buffer->next_;
    if (pending_tail_ == buffer) pending_tail_ = before;
    pending_ -= buffer->capacity_;
    taken = buffer;
  }
  try {
    taken->retire_definition();
  } catch (...) {
    give_back(taken);
    throw;
  }
  return taken;
}

Buffer* MemorySpace::reclaim_locked(int at_most) noexcept {
  Buffer* apart = nullptr;
  // Work finishes nearly in the order of freeing: polling stops at the first buffer whose work is
  // pending.
  const bool all = at_most < 0;
  for (; pending_head_ != nullptr && at_most != 0; --at_most) {
    Buffer* buffer = pending_head_;
    if (all ? !buffer->quiet() : !buffer->known_quiet()) break;
    pending_head_ = buffer->next_;
    if (pending_head_ == nullptr) pending_tail_ = nullptr;
    pending_ -= buffer->capacity_;
    if (buffer->capacity_ == 0 || buffer->holds_failure()) {
      buffer->next_ = apart;
      apart = buffer;
    } else {
      buffer->def_ = Event();
      buffer->clear_uses();
      release_locked(buffer, buffer);
    }
  }
  return apart;
}

void MemorySpace::release_apart(Buffer* buffers) noexcept {
  while (buffers != nullptr) {
    Buffer* const buffer = std::exchange(buffers, buffers->next_);
    buffer->def_ = Event();
    buffer->clear_uses();
    if (buffer->capacity_ == 0)
      destroy(buffer);
    else
      give_back_done(buffer, buffer);
  }
}

void MemorySpace::reclaim() noexcept {
  if (forked()) return;
  Buffer* apart = nullptr;
  {
    std::lock_guard lock(lock_);
    apart = reclaim_locked(-1);
  }
  release_apart(apart);
}

bool MemorySpace::wait_for_pending() {
  std::vector<Event> events;
  {
    std::lock_guard lock(lock_);
    if (pending_head_ == nullptr) return false;
    events.push_back(pending_head_->def_);
    for (const Event& e : pending_head_->uses()) events.push_back(e);
  }
  // A failed task no longer accesses the memory; its error is reported to code that reads the
  // value.
  for (const Event& e : events) {
    if (!e.done()) e.record()->block();
  }
  reclaim();
  return true;
}

}  // namespace shmap
