// Plan memory: how a captured program gets its memory. The program runs twice under capture, with
// the same code that runs it eagerly: first as a rehearsal, which records its allocations and their
// lifetimes; then with its allocations placed in a layout that is computed from the record. The
// second run is repeated for every further graph.
//   std::vector<Allocation> tape;
//   {
//     MemoryRehearsal rehearsal;
//     CaptureScope capture(backend);       // is aborted: nothing of it ever runs
//     outputs = program(inputs);           // on proxy_of(each input buffer)
//     tape = rehearsal.finish();           // while the outputs are alive, so that they escape
//   }
//   MemoryLayout layout = plan_layout(tape);
//   slabs[i] = layout.slabs[i].space->allocate(layout.slabs[i].bytes);
//   {
//     PlacedMemory memory(layout, slabs, output_set);
//     CaptureScope capture(backend);
//     outputs = program(inputs);
//     memory.finish();
//     graph = capture.end();
//   }
//
// Each of the two scopes belongs to the thread that makes it, and buffers that were allocated in
// the scope must be released on that thread. A scope may contain several captures (segments);
// allocations between these captures are ordinary ones. The allocations of a scope do not count in
// counters() or as bytes in use; the slabs and output sets do, where they are allocated.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/device/buffer.h"

namespace shmap {

// One allocation of a rehearsed program. Time is counted in allocations, over all spaces together:
// the k-th allocation of the program has born == k, and an allocation with died == k was released
// before the k-th allocation.
struct Allocation {
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  MemorySpace* space;
  std::int64_t bytes;  // as requested
  std::int64_t born;
  std::int64_t died;  // exclusive; kNever where it is alive at the end of the program
  // If later than `died`: the time until which no other allocation should get the bytes, if there
  // is room.
  std::int64_t kept = 0;
  // If not 0: the allocation goes into a slab of at most `apart` bytes (place_apart).
  std::int64_t apart = 0;

  bool escapes() const noexcept { return died == kNever; }
};

// The slabs of a program, and the slab and offset of each of its allocations.
struct MemoryLayout {
  static constexpr std::int64_t kAlignment = 64;
  static constexpr std::int64_t kEscapes = -1;

  struct Slab {
    MemorySpace* space;
    std::int64_t bytes;        // at least lower_bound
    std::int64_t lower_bound;  // the most bytes alive at one time, each allocation rounded()
  };
  struct Allocation {
    MemorySpace* space;
    std::int64_t bytes;   // as requested
    std::int64_t offset;  // in its slab; kEscapes where it escapes
    std::int32_t slab;    // index in slabs; -1 where it escapes
  };
  // First one slab for each space that needs one, in the order of first allocation; then the slabs
  // of allocations that are placed apart, any number for each space.
  std::vector<Slab> slabs;
  std::vector<Allocation> places;  // one for each allocation of the tape, in the tape's order
  std::int64_t escapes = 0;        // how many allocations escape

  // The indices of the allocations that escape, in order: an output set has a buffer for each of
  // them.
  std::vector<std::int64_t> escaping() const;
  // The bytes that an allocation takes in a slab: a multiple of kAlignment, never 0.
  static std::int64_t rounded(std::int64_t bytes) noexcept;
};

// Two allocations share bytes only where one of them died before the other was born, or at that
// time. Some bytes should stay unused after their allocation has died (Allocation::kept). If at
// least half of these bytes can do so in a slab of about the size that the lifetimes alone need,
// those that fit stay unused. Otherwise all of them stay unused, and the slab is larger. The bytes
// of allocations that are placed apart always stay unused until Allocation::kept. Deterministic:
// equal tapes give equal layouts. Takes milliseconds for thousands of allocations, and grows almost
// linearly with their number where they have few different sizes or short lives.
MemoryLayout plan_layout(std::span<const Allocation> tape);

namespace detail {

// The allocator that MemorySpace::allocate() calls on a thread that captures. Its buffers may
// outlive the scope that made it.
class CaptureMemory : public RefCounted {
 public:
  virtual ~CaptureMemory() = default;
  // As MemorySpace::allocate; Error where the program allocates otherwise than in the rehearsal.
  virtual BufferRef allocate(MemorySpace& space, std::int64_t bytes) = 0;
  // True if nothing of the capture will ever run, so that its addresses need no memory behind them.
  virtual bool rehearses() const noexcept { return false; }
  // See keep_until_now() and place_apart().
  virtual void keep(std::int64_t /*index*/) noexcept {}
  virtual void place_apart(std::int64_t /*index*/, std::int64_t /*most*/) noexcept {}
  // Called when the last owner of the index-th buffer is gone. The buffer still has its events,
  // unless all are done.
  virtual void let_go(const Buffer& buffer, std::int64_t index) noexcept = 0;
};

// What only buffers of captured programs have.
struct CapturedBuffer {
  Ref<CaptureMemory> owner;  // null for a proxy
  std::int64_t index = -1;   // among the owner's allocations
  BufferRef behind;          // the ordinary buffer whose memory this one has, or null

  static BufferRef make(MemorySpace& space, void* data, std::int64_t bytes,
                        CapturedBuffer captured);
  // Called by the buffer's space when its last owner is gone.
  static void release(Buffer& buffer) noexcept;
  static const CapturedBuffer* of(const Buffer& buffer) noexcept { return buffer.captured_; }
};

// While the scope is alive, MemorySpace::allocate() calls its CaptureMemory in captures of this
// thread. Scopes nest.
class CaptureMemoryScope {
 public:
  CaptureMemoryScope(const CaptureMemoryScope&) = delete;
  CaptureMemoryScope& operator=(const CaptureMemoryScope&) = delete;

 protected:
  explicit CaptureMemoryScope(Ref<CaptureMemory> memory) noexcept;
  ~CaptureMemoryScope();
  CaptureMemory& memory() const noexcept { return *memory_; }

 private:
  Ref<CaptureMemory> memory_;
  CaptureMemory* outer_;
};

}  // namespace detail

// While a MemoryRehearsal is alive, each allocation in a capture of this thread is recorded on the
// tape, and returns a buffer with a unique address that must not be read or written.
class MemoryRehearsal : public detail::CaptureMemoryScope {
 public:
  MemoryRehearsal();
  ~MemoryRehearsal();
  // Returns the tape; a second call throws Error. Allocations that are alive now escape. Later
  // allocations throw Error.
  std::vector<Allocation> finish();
};

// While a PlacedMemory is alive, the k-th allocation of this thread's captures gets the memory of
// entry k of layout.places: a range of a slab or, if the allocation escapes, the next of `outputs`.
// The buffer has no events from outside of the capture. If earlier allocations used the same bytes
// of a slab, their definitions and uses become uses of the new buffer, so that the task that writes
// the buffer runs after their tasks.
//
// The buffers do not keep the slabs alive; the owner of the graph must. Graphs over one slab must
// be launched in order, as graphs that were captured from the same streams are.
//
// allocate() throws Error where the program allocates differently from the rehearsal: another size
// or space, more allocations, or an allocation that is still alive although it was released by this
// time in the rehearsal.
class PlacedMemory : public detail::CaptureMemoryScope {
 public:
  // slabs: one for each of layout.slabs; outputs: one for each of layout.escaping(). ValueError
  // where one is missing, too small or in another space. The layout must outlive this object.
  PlacedMemory(const MemoryLayout& layout, std::span<const BufferRef> slabs,
               std::span<const BufferRef> outputs);
  ~PlacedMemory();
  // To be called where rehearsal.finish() was called, before the capture ends. Throws Error where
  // the program made fewer allocations than in the rehearsal, or where a part of a slab is still
  // alive.
  void finish();
};

// A proxy: a buffer over the memory of another buffer, which it keeps alive, without the events of
// that buffer. Proxies are the inputs of captured tasks. The owners of a proxy are counted apart
// from those of the original, so that the program may reuse the memory of a donated input: make one
// proxy per buffer, for all entries and arrays that share the buffer. The caller must know whether
// the original may be overwritten.
BufferRef proxy_of(const BufferRef& original);

// The tape index of a buffer that was allocated in a rehearsal or a layout; -1 for others.
std::int64_t tape_index(const Buffer& buffer) noexcept;
// In a rehearsal, asks that the bytes of the allocation with that tape index are not given to
// allocations that were made before now (Allocation::kept). Does nothing outside of a rehearsal, as
// place_apart().
void keep_until_now(std::int64_t tape_index) noexcept;
// In a rehearsal, asks that the allocation with that tape index, of at most `most` bytes, is placed
// in a slab of at most `most` bytes that holds only allocations which were placed apart. For memory
// that has to lie where a space puts small blocks.
void place_apart(std::int64_t tape_index, std::int64_t most) noexcept;
// The ordinary buffer whose memory a proxy, or an escaping buffer of a layout, has; null for
// others.
BufferRef behind(const Buffer& buffer) noexcept;

}  // namespace shmap
