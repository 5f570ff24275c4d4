#include "core/cpu/executor/running.h"

#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

#include "core/base/spin_lock.h"

namespace shmap::cpu {

namespace {

constexpr std::uintptr_t kHeld = 1;  // flag: a reader is describing the task

struct Slot {
  std::atomic<std::uintptr_t> task{0};   // a RunningTask*, with the flag kHeld
  std::atomic<std::uint32_t> let_go{0};  // counts readers that let go after the thread took its
                                         // task back
  std::uint32_t seen_let_go = 0;         // used by the slot's own thread only
  Slot* next = nullptr;
  Slot* previous = nullptr;
};

struct Slots {
  std::mutex mutex;
  Slot* first = nullptr;
};
// Never destroyed, since threads may outlive all static objects. Not allocated, since an allocation
// might fail.
Slots& slots() {
  alignas(Slots) static std::byte place[sizeof(Slots)];
  static auto* const all = ::new (static_cast<void*>(place)) Slots;
  return *all;
}

constinit thread_local Slot* this_slot = nullptr;

// Removes a thread's slot when the thread ends.
struct ThreadEnd {
  ~ThreadEnd() {
    Slot* const slot = std::exchange(this_slot, nullptr);
    if (slot == nullptr) return;
    {
      std::lock_guard lock(slots().mutex);
      (slot->previous != nullptr ? slot->previous->next : slots().first) = slot->next;
      if (slot->next != nullptr) slot->next->previous = slot->previous;
    }
    delete slot;
  }
};

// Null if there is no memory for a slot: the thread's tasks are then not listed.
Slot* make_slot() noexcept {
  Slot* const slot = new (std::nothrow) Slot;
  if (slot == nullptr) return nullptr;
  static thread_local ThreadEnd end;
  (void)&end;  // registers the destructor of `end`
  std::lock_guard lock(slots().mutex);
  slot->next = slots().first;
  if (slot->next != nullptr) slot->next->previous = slot;
  slots().first = slot;
  return this_slot = slot;
}

}  // namespace

RunningScope::RunningScope(RunningTask& task) noexcept {
  Slot* slot = this_slot;
  if (slot == nullptr) [[unlikely]]
    slot = make_slot();
  if (slot == nullptr || slot->task.load(std::memory_order_relaxed) != 0) return;
  slot->task.store(reinterpret_cast<std::uintptr_t>(&task), std::memory_order_release);
  noted_ = true;
}

RunningScope::~RunningScope() {
  Slot* const slot = this_slot;
  if (!noted_ || slot == nullptr) return;
  if ((slot->task.exchange(0, std::memory_order_acq_rel) & kHeld) == 0) return;
  ++slot->seen_let_go;
  while (slot->let_go.load(std::memory_order_acquire) != slot->seen_let_go) cpu_relax();
}

void for_each_running(const std::function<void(RunningTask&)>& see) {
  std::lock_guard lock(slots().mutex);
  for (Slot* slot = slots().first; slot != nullptr; slot = slot->next) {
    std::uintptr_t note = slot->task.load(std::memory_order_relaxed);
    do {
      if (note == 0) break;
    } while (!slot->task.compare_exchange_weak(note, note | kHeld, std::memory_order_acq_rel,
                                               std::memory_order_relaxed));
    if (note == 0) continue;
    struct LetGo {
      Slot& slot;
      std::uintptr_t note;
      ~LetGo() {
        std::uintptr_t held = note | kHeld;
        if (!slot.task.compare_exchange_strong(held, note, std::memory_order_acq_rel))
          slot.let_go.fetch_add(1, std::memory_order_release);
      }
    } const let_go{*slot, note};
    see(*reinterpret_cast<RunningTask*>(note));
  }
}

std::string describe(const RunningTask& running) {
  const Task& task = *running.task;
  if (task.describe != nullptr) return task.describe(task.args);
  return std::string(task.name) + " on local device " +
         std::to_string(running.stream->device_index()) +
         (running.stream->role() == StreamRole::comm ? ", communication stream" : "");
}

}  // namespace shmap::cpu
