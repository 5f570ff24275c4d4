// Plan memory: how a captured program gets its memory. It runs twice under capture, through the
// code that runs it eagerly: once rehearsed, to learn what it allocates and for how long; then, as
// often as graphs are wanted, in the places of a layout that was made of it.
//
//   std::vector<Allocation> tape;
//   {
//     MemoryRehearsal rehearsal;
//     CaptureScope capture(backend);       // abandoned: nothing of it ever runs
//     outputs = program(inputs);           // on proxy_of(each input buffer)
//     tape = rehearsal.finish();           // while the outputs are alive: they escape
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
// Both scopes are bound to their thread, and their buffers are let go on it alone. A scope may span
// several captures (segments); what is allocated between those is ordinary memory. Neither counts
// in counters() or as bytes in use; the slabs and output sets do, for whoever allocated them.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/device/buffer.h"

namespace shmap {

// One allocation of a rehearsed program. Time is counted in allocations, those of all spaces
// together: the k-th of the program is born at k, and one that died at k was let go before it.
struct Allocation {
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  MemorySpace* space;
  std::int64_t bytes;  // as asked for
  std::int64_t born;
  std::int64_t died;  // exclusive; kNever where it is alive at the end

  bool escapes() const noexcept { return died == kNever; }
};

// Where each allocation of a program lies.
struct MemoryLayout {
  static constexpr std::int64_t kAlignment = 64;
  static constexpr std::int64_t kEscapes = -1;

  struct Slab {
    MemorySpace* space;
    std::int64_t bytes;        // at least lower_bound
    std::int64_t lower_bound;  // the most that is alive at once, each rounded()
  };
  struct Place {
    MemorySpace* space;
    std::int64_t bytes;   // as asked for
    std::int64_t offset;  // in the slab of its space, or kEscapes
    std::int32_t slab;    // index, -1 where it escapes
  };
  std::vector<Slab> slabs;    // of the spaces that need one, in the order of first allocation
  std::vector<Place> places;  // one for each allocation, in their order
  std::int64_t escapes = 0;   // how many

  // The allocations that escape, in their order: what an output set has to hold.
  std::vector<std::int64_t> escaping() const;
  // What an allocation takes of a slab: whole pieces of kAlignment bytes, never nothing.
  static std::int64_t rounded(std::int64_t bytes) noexcept;
};

// Allocations share bytes only where the one died before, or when, the other was born. The same for
// the same tape. Takes milliseconds for thousands; for more, a time that is linear in those that
// are short-lived and quadratic in those that live for hundreds of others.
MemoryLayout plan_layout(std::span<const Allocation> tape);

namespace detail {

// What MemorySpace::allocate() asks on a thread that captures. Its buffers may outlive the scope
// that made it.
class CaptureMemory : public RefCounted {
 public:
  virtual ~CaptureMemory() = default;
  virtual BufferRef allocate(MemorySpace& space, std::int64_t bytes) = 0;
  // True where nothing of the capture will ever run: its addresses are no memory.
  virtual bool rehearses() const noexcept { return false; }
  // The last owner of its index-th buffer went; its events are still there, unless all are done.
  virtual void let_go(const Buffer& buffer, std::int64_t index) noexcept = 0;
};

// What a planned buffer has beyond an ordinary one.
struct PlannedPart {
  Ref<CaptureMemory> owner;  // null: a proxy
  std::int64_t index = -1;   // among the owner's allocations
  BufferRef behind;          // whose memory it is, where it is that of another buffer

  static BufferRef make(MemorySpace& space, void* data, std::int64_t bytes, PlannedPart part);
  static void let_go(Buffer& buffer) noexcept;
  static const PlannedPart* of(const Buffer& buffer) noexcept { return buffer.planned_; }
};

// The rest of a thread's scope: it is found by allocate() until it ends. Scopes nest.
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

// While it is alive, an allocation of a capture of this thread gives a buffer at an address of its
// own that nobody may follow, and is put on the tape.
class MemoryRehearsal : public detail::CaptureMemoryScope {
 public:
  MemoryRehearsal();
  ~MemoryRehearsal();
  // The tape; call it once. What is alive now escapes. Allocating throws Error from here on.
  std::vector<Allocation> finish();
};

// While it is alive, the k-th allocation of this thread's captures gives the k-th place of the
// layout: a part of a slab, or the next of `outputs` where it escapes, as a buffer without events
// of the world outside of the capture. A part of a slab that others had before it starts with their
// definitions and uses as its own uses, so that the task that writes it comes after them.
//
// The buffers don't keep slabs alive, the owner of the graph does; graphs over one slab must be
// launched in order, as graphs that were captured from the same streams are.
//
// allocate() throws Error where the program allocates otherwise than rehearsed: another size or
// space, more often, or while what was rehearsed to be gone by now is still alive.
class PlacedMemory : public detail::CaptureMemoryScope {
 public:
  // slabs: one for each of layout.slabs; outputs: one for each of layout.escaping(). Throws
  // ValueError where one is missing, too small or in another space. The layout outlives this.
  PlacedMemory(const MemoryLayout& layout, std::span<const BufferRef> slabs,
               std::span<const BufferRef> outputs);
  ~PlacedMemory();
  // Call it where rehearsal.finish() was called, before the capture ends. Throws Error where the
  // program allocated less often than rehearsed, or a part of a slab is still alive.
  void finish();
};

// A buffer over the memory of another, which it keeps alive, without its events: an input for
// captured tasks. Its owners are counted apart from those of the original, so the program may take
// it over where it is donated: make one for each buffer, and share it among the entries and arrays
// that share the original. Whether the original may be overwritten is for the caller to know.
BufferRef proxy_of(const BufferRef& original);

// The index on the tape of a buffer that was allocated under a rehearsal or in a layout, else -1.
std::int64_t tape_index(const Buffer& buffer) noexcept;
// The ordinary buffer whose memory a proxy or an escaping buffer of a layout has; null for others.
BufferRef behind(const Buffer& buffer) noexcept;

}  // namespace shmap
