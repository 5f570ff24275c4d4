// Stream: an ordered queue of tasks of one device.
#pragma once
#include <cstdint>
#include <span>

#include "core/base/thread_state.h"
#include "core/device/event.h"
#include "core/device/task.h"

namespace shmap {

class Stream {
 public:
  virtual ~Stream() = default;

  int device_index() const noexcept { return device_index_; }  // among the backend's devices
  StreamRole role() const noexcept { return role_; }

  // Appends a task, which starts after the stream's earlier tasks and after all of `waits` and
  // `after`. Where one of `waits` failed, the task is not run but dropped, and its event fails with
  // the same error. Events in `after` are only waited for, as the stream's earlier tasks are: it
  // does not matter whether they succeed. Takes ownership of args in every case, also
  // when it throws: Error where a capture forbids the call, DeviceError after fork(). May run the
  // task at once on this thread, and other tasks too if too many are in flight. The event of a task
  // that ran at once is done or failed if the task does its work itself, and pending if the task
  // puts its work into a hardware queue. The caller holds the backend's submit mutex.
  virtual Event enqueue(const Task& task, std::span<const Event> waits,
                        std::span<const Event> after = {}) = 0;
  // Whether enqueue() of a task of that cost, without waits, would call the task before it returns,
  // so that its args may be on the stack. The caller holds the submit mutex. `thread`, here and
  // below: the state of the calling thread.
  virtual bool runs_at_once(std::int64_t /*cost_ns*/,
                            const detail::ThreadState& /*thread*/ = detail::thread_state) noexcept {
    return false;
  }
  // Whether a task of that cost, which only its waits order, may run before the pending tasks of
  // this stream: true where the task is so small that queueing it would cost more than running it.
  virtual bool overtakes(std::int64_t /*cost_ns*/,
                         const detail::ThreadState& /*thread*/ = detail::thread_state) noexcept {
    return false;
  }
  // Whether enqueue() always calls the task before it returns, because the task only puts work into
  // a hardware queue and the hardware does the waiting. The args of every task may then be on the
  // stack. The caller holds the submit mutex.
  virtual bool calls_at_enqueue(
      const detail::ThreadState& /*thread*/ = detail::thread_state) noexcept {
    return false;
  }
  // A cheaper enqueue() without waits, for a task for which runs_at_once() or overtakes() has just
  // returned true: it runs the task before it returns, and returns the task's event, which is done
  // or failed unless calls_at_enqueue() is true.
  virtual Event run_at_once(const Task& task,
                            detail::ThreadState& /*thread*/ = detail::thread_state) {
    return enqueue(task, {}, {});
  }
  // An event that is done when everything enqueued so far is done; it never fails. The caller holds
  // the submit mutex.
  virtual Event record() = 0;
  // Whether nothing is pending. The caller holds the submit mutex.
  virtual bool idle() noexcept = 0;

 protected:
  Stream(int device_index, StreamRole role) noexcept : device_index_(device_index), role_(role) {}
  const int device_index_;
  const StreamRole role_;
};

}  // namespace shmap
