// Queue: one cudaStream, and how far it has come.
//
// The tasks of a queue are numbered, from 1. Whether a task is done is asked by its number: a
// counter says how many are known to be, and marks (events) that were recorded here and there carry
// it on. A mark covers all tasks before it, so few are needed: on a computing stream one is
// recorded when somebody wants to wait for a task that none covers yet. That one covers what was
// enqueued since, too; where another stream wanted it, and there was more than it asked for, the
// next tasks get a mark each, so that a copy does not wait for the product after the one whose
// result it moves.
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
#include "cuda/device/health.h"

namespace shmap::cuda {

class Queue;

// What somebody has to wait for: the tasks of a queue, up to this one.
struct Point {
  Ref<Queue> queue;
  std::uint64_t number = 0;
};

struct QueueOptions {
  int device_index = 0;  // among the backend's; for texts
  StreamRole role = StreamRole::compute;
  const char* label = "compute";  // static text
  bool prompt = false;            // a mark for each task
  double warn_sec = 30, timeout_sec = 600;
};

// Outlives its backend where events do; it is closed then, and all is done. What changes it is
// called under the backend's submit mutex; done(), wait_here() and the readers by any thread.
class Queue : public RefCounted {
 public:
  Queue(Ref<EventPool> events, Ref<Health> health, int priority, const QueueOptions& options);
  ~Queue();
  // Its work is over, or will never be: the stream is given back.
  void close() noexcept;

  int gpu() const noexcept { return events_->gpu(); }
  EventPool& events() const noexcept { return *events_; }
  Health& health() const noexcept { return *health_; }
  const QueueOptions& options() const noexcept { return options_; }
  // Made at first use. Throws DeviceError.
  cudaStream_t stream();
  int priority() const noexcept { return priority_; }

  // The number of the last task, and of the last that is known to be done.
  std::uint64_t tail() const noexcept { return tail_.load(std::memory_order_acquire); }
  std::uint64_t completed() const noexcept { return completed_.load(std::memory_order_acquire); }
  // A task was put into the stream: gives it its number. `name`: static text.
  std::uint64_t append(const char* name);

  // What is put into the stream from here on starts after that. Throws DeviceError.
  void wait_for(Queue& other, std::uint64_t number);
  // The same, but nothing is done about it until something is put into the stream. `by` has waited
  // for all that was put in here: be_awaited_by().
  void close_gate(Queue& by, std::uint64_t number);
  void pass_gate();
  // What `waiter` gets from here on starts after all that was put in here.
  void be_awaited_by(Queue& waiter);
  // Done when all that was put in here is.
  Point last() noexcept;
  bool idle() noexcept;  // nothing pending, as far as is known

  // Whether that task is done; asks the GPU where it has to. May be called under a spin lock.
  bool done(std::uint64_t number) noexcept;
  // Blocks until it is, or the backend is poisoned. Throws DeviceError where that takes too long.
  void wait_here(std::uint64_t number);
  // "'matmul' of device 3, compute"; of a task that is among the last 256.
  std::string name_of(std::uint64_t number) const;

 private:
  Mark* covering_locked(std::uint64_t number) noexcept;  // the earliest one, or null
  void record_locked();
  void finish_locked(std::uint64_t number) noexcept;  // the tasks up to it are done
  bool poll_locked(std::uint64_t number) noexcept;

  const Ref<EventPool> events_;
  const Ref<Health> health_;
  const int priority_;
  const QueueOptions options_;

  // Under the submit mutex.
  Point gate_;           // null where it is open
  int prompt_left_ = 0;  // tasks that get a mark each
  struct Seen {
    const Queue* queue = nullptr;
    std::uint64_t number = 0;
  };
  static constexpr int kSeen = 8;
  Seen seen_[kSeen];  // what the stream waits for already, of a few others
  int next_seen_ = 0;

  std::atomic<std::uint64_t> tail_{0}, completed_{0};
  std::mutex mutex_;  // guards what follows; CUDA is called under it, but never to wait
  cudaStream_t stream_ = nullptr;
  bool closed_ = false;
  std::deque<Ref<Mark>> marks_;  // of what is not known to be done, ascending
  std::uint64_t polled_tail_ = 0;
  int polls_ = 0;  // while the tail was that one

  static constexpr std::size_t kNames = 256;
  std::atomic<const char*> names_[kNames] = {};
};

}  // namespace shmap::cuda
