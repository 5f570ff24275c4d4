#include "core/device/memory_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/base/counters.h"
#include "core/base/fault.h"
#include "core/base/no_user_code.h"
#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/idle_memory.h"
#include "core/device/plan_memory.h"
#include "core/device/release_thread.h"
#include "shmap/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define SHMAP_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHMAP_POISON 1
#endif
#endif
#ifdef SHMAP_POISON
#include <sanitizer/asan_interface.h>
#endif

namespace shmap {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 55;
// From this size on, a slightly larger cached block is used instead of mapping a new one.
constexpr std::int64_t kLargeBytes = std::int64_t{1} << 20;
constexpr int kClassesBeyond = 2;

struct SizeClass {
  int index;
  std::int64_t bytes;
};

// 64 … 512 in steps of 64, then eight classes per doubling.
SizeClass size_class(std::int64_t bytes) noexcept {
  const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 1));
  if (n <= 512) {
    const auto k = static_cast<int>((n - 1) / 64);
    return {k, (k + 1) * 64};
  }
  const int e = 63 - std::countl_zero(n - 1);
  const auto k = static_cast<int>((n - 1 - (std::uint64_t{1} << e)) >> (e - 3));
  return {8 + (e - 9) * 8 + k, (std::int64_t{1} << e) + (static_cast<std::int64_t>(k) + 1) *
                                                            (std::int64_t{1} << (e - 3))};
}

// With AddressSanitizer, accesses to freed memory are reported.
void poison([[maybe_unused]] void* data, [[maybe_unused]] std::int64_t bytes) noexcept {
#ifdef SHMAP_POISON
  ASAN_POISON_MEMORY_REGION(data, static_cast<std::size_t>(bytes));
#endif
}
void unpoison([[maybe_unused]] void* data, [[maybe_unused]] std::int64_t bytes) noexcept {
#ifdef SHMAP_POISON
  ASAN_UNPOISON_MEMORY_REGION(data, static_cast<std::size_t>(bytes));
#endif
}

[[noreturn]] void throw_negative(std::int64_t bytes, const std::string& name) {
  throw ValueError("allocating " + std::to_string(bytes) + " bytes on " + name +
                   ": a size cannot be negative");
}

std::string readable(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  double x = static_cast<double>(bytes);
  while (x >= 1024 && unit < 6) x /= 1024, ++unit;
  if (unit == 0) return std::to_string(bytes) + " bytes";
  return fmt::format("{:.1f} {} ({} bytes)", x, kUnits[unit], bytes);
}

}  // namespace

MemorySpace::MemorySpace(int id, std::string name, std::int64_t limit, std::int64_t cache_limit)
    : id_(id), name_(std::move(name)), limit_(limit), cache_limit_(cache_limit) {}

std::int64_t MemorySpace::rounded(std::int64_t bytes) noexcept {
  return bytes > kMaxBytes ? bytes : size_class(bytes).bytes;
}

BufferRef MemorySpace::allocate(std::int64_t bytes, For whom, const detail::ThreadState& thread) {
  if (capturing(thread)) [[unlikely]]
    return allocate_captured(bytes);
  if (forked()) [[unlikely]]
    throw_forked();
  if (bytes < 0) [[unlikely]]
    throw_negative(bytes, name_);
  if (fault::point("allocate", id_) == fault::Action::oom) [[unlikely]] {
    throw_out_of_memory(bytes, "a fault was injected (SHMAP_FAULT)");
  }
  if (bytes > kMaxBytes) [[unlikely]] {
    throw_out_of_memory(bytes, "no memory is that large");
  }
  count(Counter::allocations, 1, thread);
  const auto hand_out = [bytes](Buffer* buffer) {
    buffer->bytes_ = bytes;
    unpoison(buffer->data_, bytes);
    return BufferRef::first(buffer);
  };
  const SizeClass size = size_class(bytes);
  lock_.lock();
  Buffer* apart = pending_head_ != nullptr ? reclaim_locked(4) : nullptr;
  Buffer* buffer = nullptr;
  if (free_ != nullptr && (buffer = free_[size.index]) != nullptr) [[likely]] {
    free_[size.index] = buffer->next_;
    buffer->live_ = true;
    cached_.store(cached_.load(std::memory_order_relaxed) - size.bytes, std::memory_order_relaxed);
    const std::int64_t used = in_use_.load(std::memory_order_relaxed) + size.bytes;
    in_use_.store(used, std::memory_order_relaxed);
    if (used > peak_.load(std::memory_order_relaxed)) peak_.store(used, std::memory_order_relaxed);
    lock_.unlock();
  } else {
    lock_.unlock();
    release_apart(apart);  // first, because take_fresh may throw
    return hand_out(take_fresh(bytes, size.index, whom));
  }
  if (apart != nullptr) [[unlikely]]
    release_apart(apart);
  return hand_out(buffer);
}

void MemorySpace::take_cached(std::int64_t bytes, std::uint32_t count, BufferChain& chain,
                              const detail::ThreadState& thread) {
  if (capturing(thread) || fault::armed() || forked() || bytes < 0 || bytes > kMaxBytes)
      [[unlikely]]
    return;
  const SizeClass size = size_class(bytes);
  std::uint32_t taken = 0;
  {
    std::lock_guard lock(lock_);
    if (free_ == nullptr || pending_head_ != nullptr) return;
    Buffer* last = nullptr;
    for (Buffer* b = free_[size.index]; b != nullptr && taken < count; b = b->next_, ++taken) {
      b->live_ = true;
      b->bytes_ = bytes;
      unpoison(b->data_, bytes);
      last = b;
    }
    if (last == nullptr) return;
    chain.head_ = std::exchange(free_[size.index], std::exchange(last->next_, nullptr));
    chain.last_ = last;
    const std::int64_t all = size.bytes * taken;
    cached_.store(cached_.load(std::memory_order_relaxed) - all, std::memory_order_relaxed);
    const std::int64_t used = in_use_.load(std::memory_order_relaxed) + all;
    in_use_.store(used, std::memory_order_relaxed);
    if (used > peak_.load(std::memory_order_relaxed)) peak_.store(used, std::memory_order_relaxed);
  }
  shmap::count(Counter::allocations, taken, thread);
}

BufferRef MemorySpace::allocate_captured(std::int64_t bytes) {
  detail::CaptureMemory* memory = detail::thread_state.memory;
  if (memory == nullptr) {
    throw Error("allocating " + std::to_string(bytes) + " bytes on " + name_ +
                " while this thread captures a graph: memory has to be there before");
  }
  if (bytes < 0) throw_negative(bytes, name_);
  if (bytes > kMaxBytes) throw_out_of_memory(bytes, "no memory is that large");
  return memory->allocate(*this, bytes);
}

Buffer* MemorySpace::take_fresh(std::int64_t bytes, int size_class_index, For whom) {
  const std::int64_t size = size_class(bytes).bytes;
  const bool may_wait = !in_task();
  const bool reuses = reuses_pending_ && whom == For::tasks;
  if (reuses) {
    if (Buffer* buffer = take_pending(size_class_index, size_class_index, false)) return buffer;
  }
  // Each round either takes a block, or makes room and tries again; there are at most as many
  // rounds as pending buffers.
  for (bool trimmed = false, asked = false;;) {
    reclaim();
    Buffer* buffer = nullptr;
    bool room = false;
    {
      std::lock_guard lock(lock_);
      const int last =
          std::min(size_class_index + (size >= kLargeBytes ? kClassesBeyond : 0), kClasses - 1);
      for (int c = size_class_index; c <= last && free_ != nullptr && buffer == nullptr; ++c) {
        if ((buffer = free_[c]) == nullptr) continue;
        free_[c] = buffer->next_;
        cached_ -= buffer->capacity_;
      }
      const std::int64_t limit = limit_;
      room = buffer != nullptr ||
             ((limit < 0 || size <= limit - in_use_ - cached_) &&
              (pending_ + size <= max_pending_ || pending_head_ == nullptr || !may_wait));
      if (room) {  // reserved now, so that two threads don't pass the limit together
        in_use_ += buffer != nullptr ? buffer->capacity_ : size;
        if (in_use_ > peak_) peak_ = in_use_.load();
        if (buffer != nullptr) buffer->live_ = true;
      }
    }
    if (buffer != nullptr) return buffer;
    if (!room && reuses) {  // the device should wait, not the host
      const int last = std::min(size_class_index + kClassesBeyond, kClasses - 1);
      if ((buffer = take_pending(size_class_index, last, true)) != nullptr) return buffer;
    }
    if (room) {
      void* data = nullptr;
      try {
        data = map(size);
      } catch (...) {
        std::lock_guard lock(lock_);
        in_use_ -= size;
        throw;
      }
      if (data != nullptr) {
        buffer = new (std::nothrow) Buffer;
        if (buffer == nullptr) unmap(data, size);
      }
      if (buffer != nullptr) {
        poison(data, size);
        buffer->data_ = data;
        buffer->capacity_ = size;
        buffer->space_ = this;
        buffer->size_class_ = static_cast<std::uint16_t>(size_class_index);
        buffer->live_ = true;
        std::lock_guard lock(lock_);
        link(buffer);
        return buffer;
      }
      std::lock_guard lock(lock_);
      in_use_ -= size;
    }
    const bool at_limit = !room && limit() >= 0 && size > limit() - in_use_ - cached_;
    if (!trimmed && (room || at_limit) && cached_bytes() > 0) {
      trim();
      trimmed = true;
    } else if (!may_wait || !wait_for_pending()) {
      if (!room && !at_limit) continue;  // other threads took back the pending buffers
      if (may_wait && !std::exchange(asked, true) && give_up_idle_memory()) {
        trimmed = false;
        continue;
      }
      throw_out_of_memory(bytes, room ? "the system has no more memory"
                                      : "the limit is reached (SHMAP_MEMORY_LIMIT)");
    } else {
      trimmed = false;
    }
  }
}

BufferRef MemorySpace::wrap(void* data, std::int64_t bytes, void (*deleter)(void* context) noexcept,
                            void* context) {
  if (forked()) throw_forked();
  auto* buffer = new Buffer;
  buffer->data_ = data;
  buffer->bytes_ = bytes;
  buffer->space_ = this;
  buffer->live_ = true;
  buffer->deleter_ = deleter;
  buffer->deleter_context_ = context;
  return BufferRef(buffer);
}

void MemorySpace::give_back(Buffer* buffer) noexcept {
  if (forked()) return;  // a thread that does not exist in this process may hold the lock
  // Wrapped memory goes back to its provider as soon as it can.
  const bool wrapped = buffer->capacity_ == 0;
  if (wrapped ? buffer->quiet() : buffer->known_quiet()) [[likely]] {
    if (!buffer->untouched()) {
      buffer->def_ = Event();
      buffer->clear_uses();
    }
    if (wrapped) return destroy(buffer);
    return give_back_done(buffer, buffer);
  }
  if (buffer->captured_ != nullptr)
    return destroy(buffer);  // the capture frees its buffers in the order of the program
  std::lock_guard lock(lock_);
  buffer->next_ = nullptr;
  (pending_head_ == nullptr ? pending_head_ : pending_tail_->next_) = buffer;
  pending_tail_ = buffer;
  pending_ += buffer->capacity_;
}

void MemorySpace::give_back_done(Buffer* first, Buffer* last) noexcept {
  if (forked()) [[unlikely]]
    return;
  bool overfull = false;
  {
    std::lock_guard lock(lock_);
    release_locked(first, last);
    overfull = cached_.load(std::memory_order_relaxed) > cache_limit_;
  }
  // Frees the whole cache, and not only the excess: blocks that are still needed are soon cached
  // again, and blocks of sizes that are no longer used do not stay forever.
  if (overfull) [[unlikely]]
    trim();
}

void MemorySpace::release_locked(Buffer* first, Buffer* last) noexcept {
  std::int64_t bytes = 0;
  for (Buffer* b = first;; b = b->next_) {
    b->live_ = false;
    poison(b->data_, b->capacity_);
    bytes += b->capacity_;
    if (b == last) break;
  }
  if (free_ == nullptr) free_.reset(new (std::nothrow) Buffer*[kClasses]());
  in_use_.store(in_use_.load(std::memory_order_relaxed) - bytes, std::memory_order_relaxed);
  if (free_ == nullptr) {
    last->next_ = nullptr;
    for (Buffer* b = first; b != nullptr; b = b->next_) unlink(b);
    return destroy_list(first);
  }
  Buffer*& cached = free_[first->size_class_];
  last->next_ = cached;
  cached = first;
  cached_.store(cached_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

void MemorySpace::trim() noexcept {
  Buffer* doomed = nullptr;
  {
    std::lock_guard lock(lock_);
    for (int c = 0; c < kClasses && free_ != nullptr; ++c) {
      while (Buffer* buffer = free_[c]) {
        free_[c] = buffer->next_;
        unlink(buffer);
        buffer->next_ = doomed;
        doomed = buffer;
      }
    }
    cached_ = 0;
  }
  destroy_list(doomed);
}

constinit std::atomic<Buffer*> detail::deferred_deleters{nullptr};

void MemorySpace::defer_deleter(Buffer* buffer) noexcept {
  std::atomic<Buffer*>& all = detail::deferred_deleters;
  buffer->next_ = all.load(std::memory_order_relaxed);
  while (!all.compare_exchange_weak(buffer->next_, buffer, std::memory_order_release,
                                    std::memory_order_relaxed)) {
  }
  // (A thread that submits calls run_deferred_deleters() when it has let go of the mutex.)
  if (!detail::thread_state.submits) ReleaseThread::get().wake();
}

namespace {
bool may_call_users() noexcept {
  const detail::ThreadState& thread = detail::thread_state;
  return thread.task == nullptr && thread.capture == nullptr && !thread.submits &&
         !NoUserCode::here();
}
}  // namespace

void MemorySpace::run_deferred_deleters() noexcept {
  if (!may_call_users()) return ReleaseThread::get().wake();
  Buffer* buffers = detail::deferred_deleters.exchange(nullptr, std::memory_order_acquire);
  while (buffers != nullptr) {
    Buffer* const buffer = std::exchange(buffers, buffers->next_);
    buffer->deleter_(buffer->deleter_context_);
    delete buffer;
  }
}

void MemorySpace::destroy_list(Buffer* buffers) noexcept {
  while (buffers != nullptr) {
    Buffer* next = buffers->next_;
    destroy(buffers);
    buffers = next;
  }
}

void MemorySpace::destroy(Buffer* buffer) noexcept {
  if (buffer->capacity_ > 0) {
    unpoison(buffer->data_, buffer->capacity_);
    unmap(buffer->data_, buffer->capacity_);
  } else if (buffer->deleter_ != nullptr) {
    if (!may_call_users()) return defer_deleter(buffer);
    buffer->deleter_(buffer->deleter_context_);
  } else if (buffer->captured_ != nullptr) {
    detail::CapturedBuffer::release(*buffer);
  }
  delete buffer;
}

void MemorySpace::link(Buffer* buffer) noexcept {
  buffer->all_prev_ = nullptr;
  buffer->all_next_ = all_;
  if (all_ != nullptr) all_->all_prev_ = buffer;
  all_ = buffer;
}

void MemorySpace::unlink(Buffer* buffer) noexcept {
  if (buffer->all_prev_ != nullptr) buffer->all_prev_->all_next_ = buffer->all_next_;
  if (buffer->all_next_ != nullptr) buffer->all_next_->all_prev_ = buffer->all_prev_;
  if (all_ == buffer) all_ = buffer->all_next_;
}

std::int64_t MemorySpace::bytes_in_use() noexcept {
  if (pending_bytes() > 0) reclaim();
  return in_use_.load(std::memory_order_relaxed);
}

void MemorySpace::reset_peak() noexcept {
  reclaim();
  std::lock_guard lock(lock_);
  peak_ = in_use_.load();
}

void MemorySpace::throw_out_of_memory(std::int64_t bytes, const char* why) {
  constexpr int kLargest = 5;
  std::int64_t largest[kLargest] = {}, free_block = 0, live = 0;
  {
    std::lock_guard lock(lock_);
    for (const Buffer* b = all_; b != nullptr; b = b->all_next_) {
      if (!b->live_) {
        free_block = std::max(free_block, b->capacity_);
        continue;
      }
      ++live;
      std::int64_t x = b->bytes_;
      for (std::int64_t& seat : largest) {
        if (x > seat) std::swap(x, seat);
      }
    }
  }
  std::string text = "out of memory on " + name_ + ": " + readable(bytes) + " asked for, " + why +
                     "; " + readable(in_use_) + " in use by " + std::to_string(live) + " arrays, " +
                     readable(cached_) + " cached";
  if (limit() >= 0) text += ", limit " + readable(limit());
  text += "; largest free block " + readable(free_block) + "; largest live arrays: ";
  std::string sizes;
  for (std::int64_t x : largest) {
    if (x > 0) sizes += (sizes.empty() ? "" : ", ") + readable(x);
  }
  text += sizes.empty() ? "none" : sizes;
  throw OutOfMemory(text +
                    ". Let go of arrays that are no longer needed, shard them over more memory "
                    "spaces, or raise SHMAP_MEMORY_LIMIT.");
}

}  // namespace shmap
