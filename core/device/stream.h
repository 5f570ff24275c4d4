// Stream: an ordered queue of tasks of one device. Task: what is put into it.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "core/base/thread_state.h"
#include "core/device/event.h"

namespace shmap {

class Stream;

enum class StreamRole : std::uint8_t { compute, comm };

// How a task ends that goes on after its run returned (Task::later).
class TaskEnd {
 public:
  // Once, from any thread; the task fails where `error` is not null. The args may be gone after it.
  virtual void end(std::exception_ptr error) noexcept = 0;

 protected:
  ~TaskEnd() = default;
};

struct TaskContext {
  int part;                  // 0 … parts - 1
  int parts;                 // as in the task
  Stream& stream;            // where it was enqueued
  void* native;              // a backend's own handle (a cudaStream_t); null on the CPU
  TaskEnd* end = nullptr;    // of a task with `later`: null where its run has to see it through
  std::uint64_t ticket = 0;  // of a graph's task: what this launch was given (Graph::launch)
};

// Runs one part. May throw: the executor catches, and the task's event fails. It must not enqueue,
// wait or allocate: it runs on a worker, or with the submit mutex held.
using TaskFn = void (*)(void* args, const TaskContext& context);

struct Task {
  TaskFn run = nullptr;                         // called once for each part; null: nothing to do
  void (*drop)(void* args) noexcept = nullptr;  // frees args; called once, when it won't run again
  void* args = nullptr;
  int parts = 1;             // independent parts, run in any order, at once where large
  std::int64_t cost_ns = 0;  // estimate of the whole work on one core
  const char* name = "";     // static text, for timelines and errors
  std::int64_t bytes = 0;    // moved, for timelines
  // Which call it is, for whoever waits for it in vain; null: the name says it. Called while the
  // task runs, from another thread.
  std::string (*describe)(const void* args) = nullptr;
  // It calls code of the user's, which may never return: a thread that waits leaves it to the
  // workers, where there are any, so that its wait can end.
  bool foreign = false;
  // `run` only starts the work, and context.end ends the task; where that is null, or where run
  // throws, it ends as others do. Of one part.
  bool later = false;

  // Two tasks as one. A task with `join` `takes` the memory that an earlier one, of one part,
  // `makes` and nobody else reads. Where that is all it still waits for, an executor may call join
  // with it, instead of running the two: it does the work of both, or returns false and has done
  // nothing.
  const void* makes = nullptr;
  const void* takes = nullptr;
  bool (*join)(void* args, const Task& before, const TaskContext& context) = nullptr;
};

class Stream {
 public:
  virtual ~Stream() = default;

  int device_index() const noexcept { return device_index_; }  // among the backend's local devices
  StreamRole role() const noexcept { return role_; }

  // Appends a task, which starts after the stream's earlier tasks and all of waits; where one of
  // waits failed it does not run, its event fails with the same error, and it is dropped. Earlier
  // tasks of the stream order it, but do not fail it. Takes over args in every case, also when it
  // throws: Error while a capture forbids it, DeviceError after fork(). May run the task at once on
  // this thread (then the event is done or failed), and other tasks too where too many are in
  // flight. The caller holds the backend's submit mutex.
  virtual Event enqueue(const Task& task, std::span<const Event> waits) = 0;
  // True where enqueue() of a task of that cost, with nothing to wait for, would run it before it
  // returns: the args of such a task may lie on the stack. The caller holds the submit mutex.
  // `thread`, here and below, is the calling one's.
  virtual bool runs_at_once(std::int64_t /*cost_ns*/,
                            const detail::ThreadState& /*thread*/ = detail::thread_state) noexcept {
    return false;
  }
  // The same of a task that only its waits order, and not what is pending here: true where it is so
  // small that putting it into the queue would cost more.
  virtual bool overtakes(std::int64_t /*cost_ns*/,
                         const detail::ThreadState& /*thread*/ = detail::thread_state) noexcept {
    return false;
  }
  // True where enqueue() calls a task before it returns, whatever the task waits for, since what it
  // calls only puts work into a queue of the hardware, which does the waiting: then the args of
  // every task may lie on the stack. The caller holds the submit mutex.
  virtual bool calls_at_enqueue(
      const detail::ThreadState& /*thread*/ = detail::thread_state) noexcept {
    return false;
  }
  // enqueue() without waits of a task of which one of the first two has just said so, and cheaper:
  // runs it, and returns a done or failed event.
  virtual Event run_at_once(const Task& task,
                            detail::ThreadState& /*thread*/ = detail::thread_state) {
    return enqueue(task, {});
  }
  // Done when everything enqueued so far is; never fails. The caller holds the submit mutex.
  virtual Event record() = 0;
  // True where nothing is pending. The caller holds the submit mutex.
  virtual bool idle() noexcept = 0;

 protected:
  Stream(int device_index, StreamRole role) noexcept : device_index_(device_index), role_(role) {}
  const int device_index_;
  const StreamRole role_;
};

}  // namespace shmap
