// MemorySpace: memory that a group of devices shares, with a caching allocator.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/spin_lock.h"
#include "core/base/thread_state.h"
#include "core/device/buffer.h"

namespace shmap {

namespace detail {
// Wrapped buffers without an owner, linked by next_, whose deleters wait for a thread that may call
// them.
extern std::atomic<Buffer*> deferred_deleters;
}  // namespace detail

// Thread-safe. Allocations are rounded up to a size class (eight classes per doubling, so that at
// most 1/8 is lost) and cached when they are freed. A buffer that is freed while work on it is
// pending is kept in a list until that work is done.
class MemorySpace {
 public:
  // Which code will access the memory: any code, or only tasks that wait for the buffer's uses().
  enum class For : std::uint8_t { anybody, tasks };

  // limit: the most bytes that the space may hold, in use and cached together; -1: no limit. name:
  // the devices of the space, for error messages, "CpuDevice(id=0..7)".
  MemorySpace(int id, std::string name, std::int64_t limit, std::int64_t cache_limit);
  virtual ~MemorySpace() = default;  // all buffers must be gone; a derived destructor calls trim()
  MemorySpace(const MemorySpace&) = delete;
  MemorySpace& operator=(const MemorySpace&) = delete;

  int id() const noexcept { return id_; }
  const std::string& name() const noexcept { return name_; }

  // Uninitialised memory, 64-byte aligned, without events; an allocation of 0 bytes has a valid
  // address too. Near the limit, or while many freed bytes are pending, the call may block until
  // pending work is done, and may return cached blocks and idle memory (core/device/idle_memory.h);
  // in a task it does neither. Throws OutOfMemory; ValueError for bytes < 0; Error while this
  // thread captures without a rehearsal or a layout (core/device/plan_memory.h); DeviceError after
  // fork(). Taking a cached block costs some 20 ns.
  //
  // For::tasks: a space whose tasks are ordered on the device may return memory that was freed with
  // work pending; that work appears as uses() of the new buffer. `thread`: the state of the calling
  // thread.
  BufferRef allocate(std::int64_t bytes, For whom = For::anybody,
                     const detail::ThreadState& thread = detail::thread_state);
  // Moves up to `count` buffers of that size from the cache to `chain`, which must be empty, for
  // allocations of at most `bytes` bytes. There may be fewer, or none: the caller then calls
  // allocate() for the others. Buffers that were given back together keep their order. Never blocks
  // for pending work.
  void take_cached(std::int64_t bytes, std::uint32_t count, BufferChain& chain,
                   const detail::ThreadState& thread = detail::thread_state);
  // Wraps memory that the space does not own. The memory must stay valid until deleter(context) is
  // called, after the last owner is gone and the pending work is done, by a thread that neither
  // submits, captures, traces nor runs a task or plan (core/device/release_thread.h): the deleter
  // may use arrays. It must not be null. Wrapped memory does not count as in use, and is never
  // written to. Throws DeviceError after fork().
  BufferRef wrap(void* data, std::int64_t bytes, void (*deleter)(void* context) noexcept,
                 void* context);

  // Bytes in use, rounded to size classes; freed memory counts until its pending work is done.
  std::int64_t bytes_in_use() noexcept;
  std::int64_t peak_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }
  std::int64_t cached_bytes() const noexcept { return cached_.load(std::memory_order_relaxed); }
  std::int64_t pending_bytes() const noexcept { return pending_.load(std::memory_order_relaxed); }
  std::int64_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  void set_limit(std::int64_t bytes) noexcept { limit_.store(bytes, std::memory_order_relaxed); }
  void reset_peak() noexcept;  // makes the peak the bytes in use now
  // Returns the cached blocks to the system.
  void trim() noexcept;
  // Takes back freed buffers whose pending work is done.
  void reclaim() noexcept;

  // The bytes that a request occupies: those of its size class.
  static std::int64_t rounded(std::int64_t bytes) noexcept;

  // Calls the deleters that wait, or leaves them to the library's thread where this one may not.
  static void run_deferred_deleters() noexcept;

 protected:
  // To be called by the constructor of a derived space: memory that was freed with work pending may
  // be allocated for tasks before that work is done. max_pending: the number of freed bytes that
  // may be pending; beyond it an allocation takes a pending block although the block's work is on
  // any stream (see take_pending), or waits.
  void reuse_pending(std::int64_t max_pending) noexcept {
    reuses_pending_ = true;
    max_pending_ = max_pending;
  }
  // Memory from the system, 64-byte aligned; null where there is none; DeviceError where the device
  // is lost. Any thread.
  virtual void* map(std::int64_t bytes) = 0;
  virtual void unmap(void* data, std::int64_t bytes) noexcept = 0;

 private:
  friend class Buffer;
  friend class BufferChain;
  static constexpr int kClasses = 8 * 48;

  void give_back(Buffer* buffer) noexcept;                    // its last owner is gone
  void give_back_done(Buffer* first, Buffer* last) noexcept;  // the buffers of a chain
  // Puts buffers of one size class, linked by next_, into the cache. No work on them is pending.
  void release_locked(Buffer* first, Buffer* last) noexcept;
  // Polls the head of the pending list. Returns the buffers, linked by next_, that are to be given
  // to release_apart() without the lock, since code of users may run then: the deleters of wrapped
  // buffers, and destructors of exceptions, which may own arrays of this space.
  [[nodiscard]] Buffer* reclaim_locked(int at_most) noexcept;
  void release_apart(Buffer* buffers) noexcept;
  static void defer_deleter(Buffer* buffer) noexcept;
  BufferRef allocate_captured(std::int64_t bytes);
  Buffer* take_fresh(std::int64_t bytes, int size_class, For whom);
  // The oldest pending block of these classes whose work is on compute streams or, with `any`, on
  // any stream; null where there is none among the oldest blocks of the list. Its events become
  // uses of the new buffer.
  Buffer* take_pending(int first_class, int last_class, bool any);
  bool wait_for_pending();  // waits for the oldest pending block; false where there is none
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
  // When more freed bytes than this are still pending, allocation waits: it limits how far a caller
  // can run ahead of the devices.
  std::int64_t max_pending_ = std::int64_t{256} << 20;
  mutable SpinLock lock_;            // guards all members below; atomics may be read without it
  std::unique_ptr<Buffer*[]> free_;  // by class; made at the first use: there may be 4096 spaces
  Buffer* pending_head_ = nullptr;   // freed with work pending, oldest first
  Buffer* pending_tail_ = nullptr;
  Buffer* all_ = nullptr;
  std::atomic<std::int64_t> in_use_{0}, peak_{0}, cached_{0}, pending_{0};
};

}  // namespace shmap
