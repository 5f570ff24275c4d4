#include "core/device/plan_memory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "core/device/backend.h"
#include "core/device/capture.h"
#include "core/device/memory_space.h"
#include "shmap/error.h"

namespace shmap {
namespace {

using Events = std::vector<Event>;

std::string describe(const MemorySpace& space, std::int64_t bytes) {
  return std::to_string(bytes) + " bytes on " + space.name();
}

[[noreturn]] void throw_not_as_rehearsed(const std::string& what) {
  throw Error("capturing a program whose memory was rehearsed: " + what +
              ". A captured program has to do the same each time that it is run; what it does may "
              "depend on the shapes of its inputs, not on values, time or random numbers of the "
              "host");
}

class Rehearsed final : public detail::CaptureMemory {
 public:
  bool rehearses() const noexcept override { return true; }
  BufferRef allocate(MemorySpace& space, std::int64_t bytes) override {
    if (over_) throw Error("allocating " + describe(space, bytes) + " after the rehearsal ended");
    constexpr std::int64_t kMost = std::int64_t{1} << 61;
    const std::int64_t taken = MemoryLayout::rounded(bytes) + MemoryLayout::kAlignment;
    if (taken > kMost - next_) {
      throw OutOfMemory("a captured program allocates " + describe(space, bytes) +
                        " after others that are beyond any memory together");
    }
    const auto index = static_cast<std::int64_t>(tape_.size());
    tape_.push_back({&space, bytes, index, Allocation::kNever});
    void* data = reinterpret_cast<void*>(std::exchange(next_, next_ + taken));
    return detail::CapturedBuffer::make(space, data, bytes,
                                        {Ref<detail::CaptureMemory>(this), index, BufferRef()});
  }

  void let_go(const Buffer&, std::int64_t index) noexcept override {
    if (!over_)
      tape_[static_cast<std::size_t>(index)].died = static_cast<std::int64_t>(tape_.size());
  }

  void keep(std::int64_t index) noexcept override {
    if (!over_)
      tape_[static_cast<std::size_t>(index)].kept = static_cast<std::int64_t>(tape_.size());
  }

  void place_apart(std::int64_t index, std::int64_t most) noexcept override {
    if (!over_) tape_[static_cast<std::size_t>(index)].apart = most;
  }

  std::vector<Allocation> finish() {
    if (std::exchange(over_, true)) throw Error("MemoryRehearsal: it is finished already");
    return std::move(tape_);
  }
  void end() noexcept { over_ = true; }

 private:
  std::vector<Allocation> tape_;
  // Addresses that no program can have: accessing one faults.
  std::int64_t next_ = std::int64_t{1} << 52;
  bool over_ = false;
};

class PlacedAllocator final : public detail::CaptureMemory {
 public:
  PlacedAllocator(const MemoryLayout& layout, std::span<const BufferRef> slabs,
                  std::span<const BufferRef> outputs)
      : layout_(&layout), occupied_(layout.slabs.size()) {
    if (slabs.size() != layout.slabs.size()) refuse("slabs", slabs.size(), layout.slabs.size());
    if (outputs.size() != static_cast<std::size_t>(layout.escapes)) {
      refuse("outputs", outputs.size(), static_cast<std::size_t>(layout.escapes));
    }
    for (std::size_t i = 0; i < slabs.size(); ++i) {
      check("slab", i, slabs[i], *layout.slabs[i].space, layout.slabs[i].bytes);
      slabs_.push_back(slabs[i]->data());
    }
    const std::vector<std::int64_t> escaping = layout.escaping();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto& place = layout.places[static_cast<std::size_t>(escaping[i])];
      check("output", i, outputs[i], *place.space, place.bytes);
    }
    outputs_.assign(outputs.begin(), outputs.end());
  }

  BufferRef allocate(MemorySpace& space, std::int64_t bytes) override {
    if (layout_ == nullptr) {
      throw Error("allocating " + describe(space, bytes) + " after the placed memory ended");
    }
    if (lost_) throw_lost();
    const auto index = static_cast<std::int64_t>(next_);
    if (next_ == layout_->places.size()) {
      throw_not_as_rehearsed(name_of(index) + ", of " + describe(space, bytes) +
                             ", is one more than in the rehearsal");
    }
    const MemoryLayout::Allocation& place = layout_->places[next_];
    if (place.space != &space || place.bytes != bytes) {
      throw_not_as_rehearsed(name_of(index) + " is of " + describe(space, bytes) +
                             ", and in the rehearsal it was of " +
                             describe(*place.space, place.bytes));
    }
    if (place.slab < 0) {
      BufferRef& output = outputs_[next_output_];
      BufferRef made = detail::CapturedBuffer::make(
          space, output->data(), bytes, {Ref<detail::CaptureMemory>(this), index, output});
      ++next_output_;
      ++next_;
      return made;
    }
    Occupants& occupants = occupied_[static_cast<std::size_t>(place.slab)];
    const std::int64_t end = place.offset + MemoryLayout::rounded(bytes);
    Events before = newest_between(occupants, place.offset, end, index);
    BufferRef made = detail::CapturedBuffer::make(
        space, static_cast<char*>(slabs_[static_cast<std::size_t>(place.slab)]) + place.offset,
        bytes, {Ref<detail::CaptureMemory>(this), index, BufferRef()});
    for (Event& e : before) made->add_use(std::move(e));
    cut(occupants, place.offset, end);
    occupants.emplace(place.offset, Occupant{end, nullptr, index});
    ++next_;
    return made;
  }

  void let_go(const Buffer& buffer, std::int64_t index) noexcept override {
    if (layout_ == nullptr) return;
    const MemoryLayout::Allocation& place = layout_->places[static_cast<std::size_t>(index)];
    if (place.slab < 0) return;
    Occupants& occupants = occupied_[static_cast<std::size_t>(place.slab)];
    const auto at = occupants.find(place.offset);
    if (at == occupants.end() || at->second.alive != index) return;  // it was never handed out
    at->second.alive = kGone;
    // A task that read the buffer had waited for its definition. Where the buffer was never
    // written, its uses are those of the bytes' earlier owners.
    try {
      auto events = std::make_shared<Events>();
      for (const Event& e : buffer.uses()) {
        if (!e.done()) events->push_back(e);
      }
      if (events->empty() && !buffer.def().done()) events->push_back(buffer.def());
      keep_last_of_each_stream(*events);
      at->second.events = std::move(events);
    } catch (const std::bad_alloc&) {
      lost_ = true;  // the next allocation throws
    }
    if (at->second.events == nullptr || at->second.events->empty()) occupants.erase(at);
  }

  void finish() {
    if (lost_) throw_lost();
    if (layout_ != nullptr && next_ < layout_->places.size()) {
      throw_not_as_rehearsed("it allocated " + std::to_string(next_) +
                             " times, and in the rehearsal " +
                             std::to_string(layout_->places.size()) + " times");
    }
    for (const Occupants& occupants : occupied_) {
      for (const auto& [offset, occupant] : occupants) {
        if (occupant.alive >= 0) throw_still_alive("when it ends", occupant.alive);
      }
    }
  }
  void end() noexcept {
    layout_ = nullptr;
    occupied_.clear();
    outputs_.clear();
  }

 private:
  static constexpr std::int64_t kGone = -1;
  struct Occupant {
    std::int64_t end;                      // in the slab
    std::shared_ptr<const Events> events;  // of a buffer that is gone: the events to wait for
    std::int64_t alive;                    // its index on the tape, or kGone
  };
  // The owners of a slab's bytes, current or last, by first byte. The ranges are disjoint.
  using Occupants = std::map<std::int64_t, Occupant>;

  static std::string name_of(std::int64_t index) { return "allocation " + std::to_string(index); }
  [[noreturn]] static void throw_lost() {
    throw OutOfMemory("the host has no memory left to capture a program with");
  }
  [[noreturn]] static void refuse(const char* what, std::size_t given, std::size_t wanted) {
    throw ValueError("PlacedMemory: " + std::to_string(given) + " " + what +
                     " were given, and the layout has " + std::to_string(wanted));
  }
  static void check(const char* what, std::size_t i, const BufferRef& buffer,
                    const MemorySpace& space, std::int64_t bytes) {
    if (buffer && &buffer->space() == &space && buffer->bytes() >= bytes) return;
    throw ValueError("PlacedMemory: " + std::string(what) + " " + std::to_string(i) + " is " +
                     (buffer ? describe(buffer->space(), buffer->bytes()) : "null") +
                     ", and the layout wants " + describe(space, bytes));
  }
  [[noreturn]] void throw_still_alive(const std::string& when, std::int64_t index) const {
    throw_not_as_rehearsed(when + ", " + name_of(index) + ", of " +
                           std::to_string(layout_->places[static_cast<std::size_t>(index)].bytes) +
                           " bytes, is still held by an array, and in the rehearsal it was not");
  }

  static Occupants::iterator first_beyond(Occupants& occupants, std::int64_t begin) {
    auto at = occupants.upper_bound(begin);
    if (at != occupants.begin() && std::prev(at)->second.end > begin) --at;
    return at;
  }

  // The events that remain to be waited for before these bytes may be written, each once.
  Events newest_between(Occupants& occupants, std::int64_t begin, std::int64_t end,
                        std::int64_t for_whom) const {
    Events events;
    for (auto at = first_beyond(occupants, begin); at != occupants.end() && at->first < end; ++at) {
      if (at->second.alive >= 0) throw_still_alive("at " + name_of(for_whom), at->second.alive);
      events.insert(events.end(), at->second.events->begin(), at->second.events->end());
    }
    keep_last_of_each_stream(events);
    return events;
  }

  // The last event of a stream implies the others. A value may have thousands of readers, and its
  // bytes thousands of later owners, each of which waits for the events.
  static void keep_last_of_each_stream(Events& events) {
    if (events.size() < 2) return;
    struct Place {
      const void* stream;
      std::int32_t index;
      Event event;
    };
    std::vector<Place> places;
    places.reserve(events.size());
    for (Event& e : events) {
      const auto* captured = dynamic_cast<const CapturedEvent*>(e.record());
      const void* own = e.record();  // of an event that is not captured, as if alone in a stream
      places.push_back({captured != nullptr ? captured->stream() : own,
                        captured != nullptr ? captured->index() : 0, std::move(e)});
    }
    std::ranges::sort(places, [](const Place& a, const Place& b) {
      return a.stream != b.stream ? std::less<>()(a.stream, b.stream) : a.index > b.index;
    });
    events.clear();
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (i == 0 || places[i].stream != places[i - 1].stream)
        events.push_back(std::move(places[i].event));
    }
  }

  // Removes the bytes from the ranges of their earlier owners.
  static void cut(Occupants& occupants, std::int64_t begin, std::int64_t end) {
    for (auto at = first_beyond(occupants, begin); at != occupants.end() && at->first < end;) {
      const Occupant whole = at->second;
      if (at->first < begin) {
        at->second.end = begin;
        ++at;
      } else {
        at = occupants.erase(at);
      }
      if (whole.end > end) occupants.emplace(end, whole);
    }
  }

  const MemoryLayout* layout_;  // null once the scope ended
  std::vector<void*> slabs_;
  std::vector<BufferRef> outputs_;
  std::vector<Occupants> occupied_;
  std::size_t next_ = 0, next_output_ = 0;
  bool lost_ = false;  // some events could not be stored
};

}  // namespace

namespace detail {

BufferRef CapturedBuffer::make(MemorySpace& space, void* data, std::int64_t bytes,
                               CapturedBuffer captured) {
  auto owned = std::make_unique<CapturedBuffer>(std::move(captured));
  auto* buffer = new Buffer;
  buffer->data_ = data;
  buffer->bytes_ = bytes;
  buffer->space_ = &space;
  buffer->live_ = true;
  buffer->captured_ = owned.release();
  return BufferRef::first(buffer);
}

void CapturedBuffer::release(Buffer& buffer) noexcept {
  const std::unique_ptr<CapturedBuffer> captured(std::exchange(buffer.captured_, nullptr));
  if (captured->owner) captured->owner->let_go(buffer, captured->index);
}

CaptureMemoryScope::CaptureMemoryScope(Ref<CaptureMemory> memory) noexcept
    : memory_(std::move(memory)), outer_(std::exchange(thread_state.memory, memory_.get())) {}

CaptureMemoryScope::~CaptureMemoryScope() { thread_state.memory = outer_; }

}  // namespace detail

MemoryRehearsal::MemoryRehearsal() : CaptureMemoryScope(make_ref<Rehearsed>()) {}
MemoryRehearsal::~MemoryRehearsal() { static_cast<Rehearsed&>(memory()).end(); }
std::vector<Allocation> MemoryRehearsal::finish() {
  return static_cast<Rehearsed&>(memory()).finish();
}

PlacedMemory::PlacedMemory(const MemoryLayout& layout, std::span<const BufferRef> slabs,
                           std::span<const BufferRef> outputs)
    : CaptureMemoryScope(make_ref<PlacedAllocator>(layout, slabs, outputs)) {}
PlacedMemory::~PlacedMemory() { static_cast<PlacedAllocator&>(memory()).end(); }
void PlacedMemory::finish() { static_cast<PlacedAllocator&>(memory()).finish(); }

BufferRef proxy_of(const BufferRef& original) {
  return detail::CapturedBuffer::make(original->space(), original->data(), original->bytes(),
                                      {Ref<detail::CaptureMemory>(), -1, original});
}

std::int64_t tape_index(const Buffer& buffer) noexcept {
  const detail::CapturedBuffer* captured = detail::CapturedBuffer::of(buffer);
  return captured == nullptr ? -1 : captured->index;
}

void keep_until_now(std::int64_t tape_index) noexcept {
  detail::CaptureMemory* const memory = detail::thread_state.memory;
  if (memory != nullptr && tape_index >= 0) memory->keep(tape_index);
}

void place_apart(std::int64_t tape_index, std::int64_t most) noexcept {
  detail::CaptureMemory* const memory = detail::thread_state.memory;
  if (memory != nullptr && tape_index >= 0) memory->place_apart(tape_index, most);
}

BufferRef behind(const Buffer& buffer) noexcept {
  const detail::CapturedBuffer* captured = detail::CapturedBuffer::of(buffer);
  return captured == nullptr ? BufferRef() : captured->behind;
}

}  // namespace shmap
