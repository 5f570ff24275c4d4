// Queue: one cudaStream, and the number of its tasks that are known to be done.
//
// The tasks of a queue are numbered from 1. Whether a task is done is asked by its number: a
// counter holds the number up to which tasks are known to be done, and marks (events that are
// recorded at some tasks) advance it. A mark covers all tasks before it, so few are needed: on a
// computing stream a mark is recorded when a thread or stream waits for a task that no mark covers
// yet. That mark also covers the tasks enqueued since. Where another stream waited, and the mark
// covered more than that stream needed, the next tasks get a mark each, so that a copy does not
// wait for the product after the one whose result it moves.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "core/base/intrusive.h"
#include "core/device/stream.h"
#include "cuda/device/event_pool.h"
#include "cuda/driver/health.h"

namespace shmap::cuda {

class Queue;

// A position to wait for: the tasks of a queue up to this number.
struct Point {
  Ref<Queue> queue;
  std::uint64_t number = 0;
};

struct QueueOptions {
  int device_index = 0;  // among the backend's devices; for texts
  StreamRole role = StreamRole::compute;
  const char* label = "compute";  // static text
  bool prompt = false;            // each task gets a mark
  double warn_sec = 30, timeout_sec = 600;
};

// May outlive its backend, as events may; it is closed then, and all tasks count as done. Functions
// that change it are called under the backend's submit mutex; done(), wait_here() and the readers
// by any thread.
class Queue : public RefCounted {
 public:
  Queue(Ref<EventPool> events, Ref<Health> health, int priority, const QueueOptions& options);
  ~Queue();
  // Destroys the stream; called when its work is over, or will never end.
  void close() noexcept;

  int gpu() const noexcept { return events_->gpu(); }
  EventPool& events() const noexcept { return *events_; }
  Health& health() const noexcept { return *health_; }
  const QueueOptions& options() const noexcept { return options_; }
  // The stream, made at first use. Throws DeviceError.
  cudaStream_t stream();
  int priority() const noexcept { return priority_; }

  // The number of the last task, and of the last that is known to be done.
  std::uint64_t tail() const noexcept { return tail_.load(std::memory_order_acquire); }
  std::uint64_t completed() const noexcept { return completed_.load(std::memory_order_acquire); }
  // Numbers a task that was put into the stream. `name`: static text.
  std::uint64_t append(const char* name);

  // Makes work that is put into the stream from now on start after that task of `other`. Throws
  // DeviceError.
  void wait_for(Queue& other, std::uint64_t number);
  // The same as wait_for(), but deferred until work is put into this stream. `by` must have waited
  // for all work of this stream: be_awaited_by().
  void close_gate(Queue& by, std::uint64_t number);
  void pass_gate();  // makes the deferred wait; to be called before work is put into the stream
  // Makes later work of `waiter` start after all work of this queue.
  void be_awaited_by(Queue& waiter);
  // The position of the last task.
  Point last() noexcept;
  bool idle() noexcept;  // no task is pending, as far as is known

  // True if that task is done; queries the GPU if necessary. May be called under a spin lock.
  bool done(std::uint64_t number) noexcept;
  // As done(), but with few queries: some after each wait of a host thread, for any queue, which
  // may have let memory become free; else only every kCallsForQuery-th call queries the GPU.
  bool known_done(std::uint64_t number) noexcept;
  // As done(), but true while another thread asks about the queue, whose answer is not known yet.
  bool may_have_ended(std::uint64_t number) noexcept;
  // Blocks until the task is done or the backend is poisoned. Throws DeviceError after the
  // deadline.
  void wait_here(std::uint64_t number);
  // A text such as "'matmul' of device 3, compute", for the last 256 tasks.
  std::string name_of(std::uint64_t number) const;

 private:
  Mark* covering_locked(std::uint64_t number) noexcept;  // the earliest mark that covers the task,
                                                         // or null
  void record_locked();
  void finish_locked(std::uint64_t number) noexcept;  // the tasks up to this number are done
  bool ask(std::uint64_t number, bool seldom) noexcept;
  bool may_query_locked() noexcept;
  bool poll_locked(std::uint64_t number) noexcept;

  const Ref<EventPool> events_;
  const Ref<Health> health_;
  const int priority_;
  const QueueOptions options_;

  // Guarded by the submit mutex.
  Point gate_;           // null: the gate is open
  int prompt_left_ = 0;  // number of further tasks that get a mark each
  struct Seen {
    const Queue* queue = nullptr;
    std::uint64_t number = 0;
  };
  static constexpr int kSeen = 8;
  Seen seen_[kSeen];  // positions of other queues that the stream already waits for
  int next_seen_ = 0;

  std::atomic<std::uint64_t> tail_{0}, completed_{0};
  std::mutex mutex_;  // guards the members below; CUDA functions are called under it, but not to
                      // wait
  cudaStream_t stream_ = nullptr;
  bool closed_ = false;
  std::deque<Ref<Mark>> marks_;  // for tasks that are not known to be done, ascending
  // Of known_done(): the waits of host threads that it has seen, the queries left after the last
  // of these, and the calls since the last query.
  std::uint64_t seen_host_waits_ = 0;
  int queries_left_ = 0, calls_without_ = 0;
  std::uint64_t polled_tail_ = 0;
  int polls_ = 0;  // queries since the last task was added

  static constexpr std::size_t kNames = 256;
  std::atomic<const char*> names_[kNames] = {};
};

}  // namespace shmap::cuda
