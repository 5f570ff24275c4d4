// CaptureLog: what every backend records during a capture: the tasks, the order between them, and
// their events.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/pointer_map.h"
#include "core/base/thread_state.h"
#include "core/device/event.h"
#include "core/device/stream.h"

namespace shmap {

// The event of a captured task: a position in the capture. No thread can wait for it; it is done
// once the capture is over.
class CapturedEvent final : public Completion {
 public:
  CapturedEvent(const void* capture, std::int32_t index, const void* stream) noexcept
      : Completion(capture), index_(index), stream_(stream) {}
  void block() override;  // throws Error
  std::int32_t index() const noexcept { return index_; }
  // A stream of the task. Tasks of one stream run in the order of their indices, so that who waits
  // for the last of several tasks of a stream has waited for the others.
  const void* stream() const noexcept { return stream_; }
  void end_of_capture() noexcept { word_.store(Completion::done, std::memory_order_release); }

 private:
  const std::int32_t index_;
  const void* const stream_;
};

// A captured task. StreamType: the backend's class of streams.
template <class StreamType>
struct CapturedTask {
  using Streams = StreamType;
  Task task;  // `drop` is null unless the capture owns the args
  std::vector<StreamType*> streams;
  // The indices of its direct predecessors, ascending: of those that share a stream, only the last.
  std::vector<std::int32_t> before;
  Ref<CapturedEvent> event;
};

namespace detail {
// Adds to `before` the indices of the captured tasks among `waits` and `after`. Throws the error of
// a failed event in `waits`, and Error where an event is neither captured here nor done.
void add_captured_waits(const void* capture, const Task& task, std::span<const Event> waits,
                        std::span<const Event> after, std::vector<std::int32_t>& before);
// Called by begin_capture of every backend. Throws Error where the thread captures already or runs
// a task, DeviceError after fork().
void check_begins_capture();
}  // namespace detail

// The tasks of one capture, in order. Entry: CapturedTask, or a backend's class derived from it.
// Used by one thread.
template <class Entry>
class CaptureLog {
 public:
  using StreamType = typename Entry::Streams;

  CaptureLog() = default;
  CaptureLog(const CaptureLog&) = delete;
  CaptureLog& operator=(const CaptureLog&) = delete;
  // Drops the args that no graph has taken, and ends the events.
  ~CaptureLog() {
    for (Entry& e : entries_) {
      if (e.task.drop != nullptr) e.task.drop(e.task.args);
      e.event->end_of_capture();
    }
  }

  std::vector<Entry>& entries() noexcept { return entries_; }
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  // The streams that were used.
  std::vector<StreamType*> streams() const {
    std::vector<StreamType*> all;
    for (const Last& l : last_) {
      if (l.index >= 0) all.push_back(l.stream);
    }
    return all;
  }

  // Makes the entry that will be appended after `ahead` entries which the caller has made but not
  // yet appended. Its task runs after the last appended tasks of its streams and after `waits` and
  // `after`. Throws as add_captured_waits does. The caller remains the owner of the args.
  Entry make(std::span<StreamType* const> streams, const Task& task, std::span<const Event> waits,
             std::span<const Event> after, std::size_t ahead = 0) {
    Entry e;
    for (StreamType* s : streams) {
      if (const Last& last = last_of(s); last.index >= 0) e.before.push_back(last.index);
    }
    detail::add_captured_waits(this, task, waits, after, e.before);
    std::ranges::sort(e.before);
    e.before.erase(std::unique(e.before.begin(), e.before.end()), e.before.end());
    drop_implied(e.before);
    e.streams.assign(streams.begin(), streams.end());
    e.task = task;
    e.task.drop = nullptr;
    e.event = make_ref<CapturedEvent>(this, static_cast<std::int32_t>(entries_.size() + ahead),
                                      streams.front());
    return e;
  }

  // Appends an entry that make() returned.
  Event append(Entry e) {
    const auto index = static_cast<std::int32_t>(entries_.size());
    entries_.push_back(std::move(e));
    for (StreamType* s : entries_.back().streams) last_[*position_.find(s)].index = index;
    return Event(entries_.back().event);
  }

  // Makes an entry, calls record(entry), by which the backend adds its own data, and appends the
  // entry. Takes ownership of the args in every case, also when it throws.
  template <class Record>
  Event add(std::span<StreamType* const> streams, const Task& task, std::span<const Event> waits,
            std::span<const Event> after, Record record) {
    Event event;
    try {
      Entry e = make(streams, task, waits, after);
      record(e);
      event = append(std::move(e));
    } catch (...) {
      if (task.drop != nullptr) task.drop(task.args);
      throw;
    }
    entries_.back().task.drop = task.drop;
    return event;
  }

  // The event of the last task that was captured in the stream, for Stream::record; a done Event if
  // there is none.
  Event record(const StreamType& stream) const {
    const std::size_t* const known = position_.find(&stream);
    if (known == nullptr || last_[*known].index < 0) return Event();
    return Event(entries_[static_cast<std::size_t>(last_[*known].index)].event);
  }

 private:
  struct Last {
    StreamType* stream;
    std::int32_t index;     // of the stream's last task; -1 where none is appended yet
    std::int64_t seen = 0;  // the latest pass of drop_implied() that met the stream
  };

  Last& last_of(StreamType* stream) {
    if (const std::size_t* known = position_.find(stream)) return last_[*known];
    last_.push_back({stream, -1});
    position_[stream] = last_.size() - 1;
    return last_.back();
  }

  // Of the tasks that share a stream, keeps the last, which runs after the others. A graph has an
  // edge for each task that is left, and each replay pays for each edge. `tasks` ascends.
  void drop_implied(std::vector<std::int32_t>& tasks) {
    if (tasks.size() < 2) return;
    ++pass_;
    std::size_t kept = tasks.size();
    for (std::size_t i = tasks.size(); i-- > 0;) {
      bool implied = false;
      for (StreamType* s : entries_[static_cast<std::size_t>(tasks[i])].streams) {
        Last& last = last_[*position_.find(s)];
        implied = std::exchange(last.seen, pass_) == pass_ || implied;
      }
      if (!implied) tasks[--kept] = tasks[i];
    }
    tasks.erase(tasks.begin(), tasks.begin() + static_cast<std::ptrdiff_t>(kept));
  }

  std::vector<Entry> entries_;
  std::vector<Last> last_;            // of each stream that was named
  PointerMap<std::size_t> position_;  // of a stream in last_
  std::int64_t pass_ = 0;
};

}  // namespace shmap
