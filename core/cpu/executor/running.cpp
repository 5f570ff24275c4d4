#include "core/cpu/executor/running.h"

#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

#include "core/base/spin_lock.h"

namespace shmap::cpu {

namespace {

constexpr std::uintptr_t kHeld = 1;  // flag: a reader is describing the task

struct ThreadEntry {
  std::atomic<std::uintptr_t> task{0};   // a RunningTask*, with the flag kHeld
  std::atomic<std::uint32_t> let_go{0};  // counts readers that let go after the thread took its
                                         // task back
  std::uint32_t seen_let_go = 0;         // used by the entry's own thread only, as `noted`
  std::uint64_t noted = 0;               // how many tasks the thread has noted
  ThreadEntry* next = nullptr;
  ThreadEntry* previous = nullptr;
};

struct ThreadList {
  std::mutex mutex;
  ThreadEntry* first = nullptr;
};
// Never destroyed, since threads may outlive all static objects. Not allocated, since an allocation
// might fail.
ThreadList& threads() {
  alignas(ThreadList) static std::byte place[sizeof(ThreadList)];
  static auto* const all = ::new (static_cast<void*>(place)) ThreadList;
  return *all;
}

constinit thread_local ThreadEntry* this_entry = nullptr;

// Removes a thread's entry when the thread ends.
struct ThreadEnd {
  ~ThreadEnd() {
    ThreadEntry* const entry = std::exchange(this_entry, nullptr);
    if (entry == nullptr) return;
    {
      std::lock_guard lock(threads().mutex);
      (entry->previous != nullptr ? entry->previous->next : threads().first) = entry->next;
      if (entry->next != nullptr) entry->next->previous = entry->previous;
    }
    delete entry;
  }
};

// Null if there is no memory for an entry: the thread's tasks are then not listed.
ThreadEntry* make_entry() noexcept {
  ThreadEntry* const entry = new (std::nothrow) ThreadEntry;
  if (entry == nullptr) return nullptr;
  static thread_local ThreadEnd end;
  (void)&end;  // registers the destructor of `end`
  std::lock_guard lock(threads().mutex);
  entry->next = threads().first;
  if (entry->next != nullptr) entry->next->previous = entry;
  threads().first = entry;
  return this_entry = entry;
}

}  // namespace

RunningScope::RunningScope(RunningTask& task) noexcept {
  ThreadEntry* entry = this_entry;
  if (entry == nullptr) [[unlikely]]
    entry = make_entry();
  if (entry == nullptr || entry->task.load(std::memory_order_relaxed) != 0) return;
  task.serial = ++entry->noted;
  entry->task.store(reinterpret_cast<std::uintptr_t>(&task), std::memory_order_release);
  noted_ = true;
}

RunningScope::~RunningScope() {
  ThreadEntry* const entry = this_entry;
  if (!noted_ || entry == nullptr) return;
  if ((entry->task.exchange(0, std::memory_order_acq_rel) & kHeld) == 0) return;
  ++entry->seen_let_go;
  while (entry->let_go.load(std::memory_order_acquire) != entry->seen_let_go) cpu_relax();
}

void for_each_running(const std::function<void(RunningTask&)>& see) {
  std::lock_guard lock(threads().mutex);
  for (ThreadEntry* entry = threads().first; entry != nullptr; entry = entry->next) {
    std::uintptr_t note = entry->task.load(std::memory_order_relaxed);
    do {
      if (note == 0) break;
    } while (!entry->task.compare_exchange_weak(note, note | kHeld, std::memory_order_acq_rel,
                                                std::memory_order_relaxed));
    if (note == 0) continue;
    struct LetGo {
      ThreadEntry& entry;
      std::uintptr_t note;
      ~LetGo() {
        std::uintptr_t held = note | kHeld;
        if (!entry.task.compare_exchange_strong(held, note, std::memory_order_acq_rel))
          entry.let_go.fetch_add(1, std::memory_order_release);
      }
    } const let_go{*entry, note};
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
