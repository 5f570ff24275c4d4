// MemorySpace: memory that a group of devices shares, behind a caching allocator.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/spin_lock.h"
#include "core/base/thread_state.h"
#include "core/device/buffer.h"

namespace shmap {

// Thread-safe. Blocks are rounded up to a size class (eight a doubling, so at most 1/8 is lost) and
// cached when freed; a buffer freed with work pending waits in a list until that work is done.
class MemorySpace {
 public:
  // Who touches the memory that is asked for: anybody, or nobody but tasks that wait for the
  // buffer's uses().
  enum class For : std::uint8_t { anybody, tasks };

  // limit: the most bytes that may be held, in use and cached together; -1 for none.
  // name: the devices that it serves, for error texts, "CpuDevice(id=0..7)".
  MemorySpace(int id, std::string name, std::int64_t limit, std::int64_t cache_limit);
  virtual ~MemorySpace() = default;  // its buffers must be gone; a derived destructor calls trim()
  MemorySpace(const MemorySpace&) = delete;
  MemorySpace& operator=(const MemorySpace&) = delete;

  int id() const noexcept { return id_; }
  const std::string& name() const noexcept { return name_; }

  // Uninitialised memory, 64-byte aligned, with no event; 0 bytes give a valid address too. May
  // wait for pending work, and give cached blocks back, where the limit is near. Throws
  // OutOfMemory, ValueError for bytes < 0, Error while this thread captures and neither rehearses
  // nor places memory (core/device/plan_memory.h). A cached block costs some 20 ns.
  //
  // For tasks alone, a space whose tasks are ordered on the device may hand out memory that was
  // freed with work pending: what is pending are uses() of the new buffer.
  // `thread` is the calling one's.
  BufferRef allocate(std::int64_t bytes, For whom = For::anybody,
                     const detail::ThreadState& thread = detail::thread_state);
  // Wraps memory of someone else, which stays valid until deleter(context) is called: when the last
  // owner went and the work is done. It does not count as in use, and nothing writes to it. The
  // deleter is not null.
  BufferRef wrap(void* data, std::int64_t bytes, void (*deleter)(void* context) noexcept,
                 void* context);

  // Rounded to size classes; memory that was freed counts until its pending work is done.
  std::int64_t bytes_in_use() noexcept;
  std::int64_t peak_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }
  std::int64_t cached_bytes() const noexcept { return cached_.load(std::memory_order_relaxed); }
  std::int64_t pending_bytes() const noexcept { return pending_.load(std::memory_order_relaxed); }
  std::int64_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  void set_limit(std::int64_t bytes) noexcept { limit_.store(bytes, std::memory_order_relaxed); }
  void reset_peak() noexcept;
  // Gives the cached blocks back to the system.
  void trim() noexcept;
  // Takes back freed buffers whose work is done.
  void reclaim() noexcept;

  // The bytes that a request takes: its size class.
  static std::int64_t rounded(std::int64_t bytes) noexcept;

 protected:
  // Memory that was freed with work pending may be handed out for tasks before that is done. From
  // the constructor of a derived space. max_pending: what may be freed ahead of the device before
  // allocating takes what will be free last, or waits.
  void reuse_pending(std::int64_t max_pending) noexcept {
    reuses_pending_ = true;
    max_pending_ = max_pending;
  }
  // Memory from the system, 64-byte aligned; null where there is none, DeviceError where there is
  // no device any more. Any thread.
  virtual void* map(std::int64_t bytes) = 0;
  virtual void unmap(void* data, std::int64_t bytes) noexcept = 0;

 private:
  friend class Buffer;
  static constexpr int kClasses = 8 * 48;

  void give_back(Buffer* buffer) noexcept;       // the last owner went
  void release_locked(Buffer* buffer) noexcept;  // its work is done: cache it
  // Polls the head of the pending list. Returns foreign buffers, to be destroyed without the lock.
  [[nodiscard]] Buffer* reclaim_locked(int at_most) noexcept;
  BufferRef allocate_captured(std::int64_t bytes);
  Buffer* take_fresh(std::int64_t bytes, int size_class, For whom);
  // The oldest pending block of these classes whose work is on computing streams, or any; null
  // where there is none. Its events become uses.
  Buffer* take_pending(int first_class, int last_class, bool any);
  bool wait_for_pending();  // waits for the oldest; false where there is none
  void destroy(Buffer* buffer) noexcept;
  void destroy_list(Buffer* buffers) noexcept;  // linked by next_
  [[noreturn]] void throw_out_of_memory(std::int64_t bytes, const char* why);
  void link(Buffer* buffer) noexcept;
  void unlink(Buffer* buffer) noexcept;

  const int id_;
  const std::string name_;
  std::atomic<std::int64_t> limit_;
  const std::int64_t cache_limit_;
  bool reuses_pending_ = false;
  // Beyond this, memory that was freed and is still held by queued work is waited for: it bounds
  // what a caller that runs ahead of the devices can pile up.
  std::int64_t max_pending_ = std::int64_t{256} << 20;
  mutable SpinLock lock_;  // guards all below; the numbers are atomic for their readers alone
  std::unique_ptr<Buffer*[]> free_;  // by class; made at first use, since there may be 4096 spaces
  Buffer* pending_head_ = nullptr;   // freed, oldest first
  Buffer* pending_tail_ = nullptr;
  Buffer* all_ = nullptr;
  std::atomic<std::int64_t> in_use_{0}, peak_{0}, cached_{0}, pending_{0};
};

}  // namespace shmap
