// Launching: enqueues host work on blocks in a device's stream, ordered after the tasks that write
// and read these blocks.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/device/backend.h"
#include "core/device/buffer.h"

namespace shmap {

// The parameters of a launched task, besides its work.
struct LaunchSpec {
  Stream* stream;
  const char* name;          // static text
  std::int64_t cost_ns = 0;  // an estimate of all parts together, on one core
  std::int64_t bytes = 0;
  int parts = 1;
};

// The events for which a task waits. Up to kFew events need no heap memory.
class Waits {
 public:
  Waits() = default;
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;
  ~Waits() {
    for (std::size_t i = 0; i < std::min(n_, kFew); ++i) few()[i].~Event();
  }
  void push_back(const Event& event) {
    if (n_ < kFew) {
      ::new (static_cast<void*>(few() + n_)) Event(event);
    } else {
      if (n_ == kFew) more_.assign(few(), few() + kFew);
      more_.push_back(event);
    }
    ++n_;
  }
  bool empty() const noexcept { return n_ == 0; }
  operator std::span<const Event>() const noexcept {
    return {n_ <= kFew ? few() : more_.data(), n_};
  }

 private:
  static constexpr std::size_t kFew = 8;
  Event* few() noexcept { return std::launder(reinterpret_cast<Event*>(few_)); }
  const Event* few() const noexcept { return std::launder(reinterpret_cast<const Event*>(few_)); }
  std::size_t n_ = 0;
  alignas(Event) std::byte few_[kFew * sizeof(Event)];  // constructed one by one; often there are
                                                        // none
  std::vector<Event> more_;                             // all events, once there are more than kFew
};

// What a task waits for. data: the definitions of what it reads, with whose failure it fails.
// order: earlier readers of memory that it overwrites, whose failure does not concern it.
struct TaskWaits {
  Waits data, order;
  bool empty() const noexcept { return data.empty() && order.empty(); }
};

namespace detail {
// Whether the event is known to be done and did not fail; such an event is replaced by the empty
// one.
inline bool settled(Event& event) {
  if (event.record() == nullptr) return true;
  if (!event.known_done() || event.failed()) return false;
  event = Event();
  return true;
}
[[noreturn]] void throw_in_task(const char* what);
// Whether a task that reads and writes these buffers has nothing to wait for. A quick check that
// may return false for buffers whose tasks are done.
inline bool nothing_pending(std::span<Buffer* const> reads, std::span<Buffer* const> writes) {
  for (Buffer* b : reads)
    if (b->def().record() != nullptr) return false;
  for (Buffer* b : writes)
    if (!b->untouched()) return false;
  return true;
}
// Throws where this thread is running a task: a kernel or callback on a worker thread has no trace,
// and an array operation there would wait for a lock that the task's caller may hold.
inline void refuse_in_task(const char* what, const ThreadState& thread = thread_state) {
  if (in_task(thread)) [[unlikely]]
    throw_in_task(what);
}
// Collects the events for which a task that reads and writes these buffers must wait. The
// definition of a buffer that is written counts as data: the task may keep a part of it. Where the
// task overwrites the whole buffer, see Buffer::retire_definition().
void collect_waits(std::span<Buffer* const> reads, std::span<Buffer* const> writes,
                   TaskWaits& waits);
// Enters the task's event as a use of the buffers that it reads and as the definition of those that
// it writes.
void note_launch(const Event& event, std::span<Buffer* const> reads,
                 std::span<Buffer* const> writes);
}  // namespace detail

namespace detail {
inline Task task_of(const LaunchSpec& spec) {
  Task task;
  task.parts = spec.parts;
  task.cost_ns = spec.cost_ns;
  task.name = spec.name;
  task.bytes = spec.bytes;
  return task;
}
}  // namespace detail

// Runs work(part, parts, native) as one task. The task waits for the definitions of `reads`, and
// for the definitions and uses of `writes`, and fails with a definition; it becomes a use of the
// former and the definition of the latter. A small task without pending waits runs at once, and so
// does every task of a stream that calls tasks when they are enqueued; these need no heap memory.
// Otherwise `work` is moved into the task. The caller holds the backend's submit mutex.
template <class Work>
void launch(const LaunchSpec& spec, std::span<Buffer* const> reads, std::span<Buffer* const> writes,
            Work work) {
  TaskWaits waits;
  if (!detail::nothing_pending(reads, writes)) detail::collect_waits(reads, writes, waits);
  Task task = detail::task_of(spec);
  task.run = [](void* args, const TaskContext& context) {
    (*static_cast<Work*>(args))(context.part, context.parts, context.native);
  };
  Event event;
  detail::ThreadState& thread = detail::thread_state;
  if (waits.empty() && spec.stream->runs_at_once(spec.cost_ns, thread)) {
    task.args = &work;
    event = spec.stream->run_at_once(task, thread);
  } else if (spec.stream->calls_at_enqueue(thread)) {
    task.args = &work;
    event = spec.stream->enqueue(task, waits.data, waits.order);
  } else {
    task.args = new Work(std::move(work));
    task.drop = [](void* args) noexcept { delete static_cast<Work*>(args); };
    event = spec.stream->enqueue(task, waits.data, waits.order);
  }
  if (event.record() != nullptr) detail::note_launch(event, reads, writes);
}

// Like launch(), for work that goes on after the call: work(end) starts it, and *end is told when
// it has ended (Task::later); where `end` is null, the work has ended when the call returns. The
// task has one part, and no cost for which it would be run at once.
template <class Work>
void launch_later(LaunchSpec spec, std::span<Buffer* const> reads, std::span<Buffer* const> writes,
                  Work work) {
  constexpr std::int64_t kTooLongToRunAtOnce = 1'000'000'000'000;
  spec.cost_ns = kTooLongToRunAtOnce;
  spec.parts = 1;
  TaskWaits waits;
  if (!detail::nothing_pending(reads, writes)) detail::collect_waits(reads, writes, waits);
  Task task = detail::task_of(spec);
  task.later = true;
  task.run = [](void* args, const TaskContext& context) {
    (*static_cast<Work*>(args))(context.end);
  };
  task.args = new Work(std::move(work));
  task.drop = [](void* args) noexcept { delete static_cast<Work*>(args); };
  const Event event = spec.stream->enqueue(task, waits.data, waits.order);
  if (event.record() != nullptr) detail::note_launch(event, reads, writes);
}

}  // namespace shmap
