// Backend: the devices of one kind that this process drives.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/base/intrusive.h"
#include "core/base/thread_state.h"
#include "core/device/device_kinds.h"
#include "core/device/graph.h"
#include "core/device/memory_space.h"
#include "core/device/stream.h"
#include "core/device/submit_mutex.h"
#include "shmap/device.h"

namespace shmap {

namespace detail {
// Makes devices: for backends alone.
struct DeviceAccess {
  static Device make(int id, int process_index, DeviceKind kind) noexcept {
    return Device(id, process_index, kind);
  }
};
}  // namespace detail

struct LocalDevice {
  Device device;
  int index;           // among the backend's devices
  MemorySpace* space;  // its own, or shared with other devices
  Stream* compute;
  Stream* comm;
};

// True while this thread runs a task. Array operations, waits and enqueueing are errors then.
inline bool in_task(const detail::ThreadState& thread = detail::thread_state) noexcept {
  return thread.task != nullptr;
}

class Backend {
 public:
  virtual ~Backend() = default;
  virtual DeviceKind kind() const noexcept = 0;
  const char* name() const noexcept { return row_of(kind()).spelled; }
  // True where host code may access the devices' memory by its address, at the times that
  // Buffer::quiet() allows.
  bool host_addressable() const noexcept { return row_of(kind()).host_memory; }
  virtual std::span<const LocalDevice> devices() const noexcept = 0;
  // The number of the hardware device behind that local device, in the numbering of its own
  // interface (CUDA's ordinal).
  virtual int native_number(int /*index*/) const noexcept { return 0; }
  virtual std::span<MemorySpace* const> spaces() const noexcept = 0;

  // A thread holds the submit mutex while it enqueues a whole step for all devices, so that the
  // steps of two threads don't interleave. Tasks cannot lock the mutex, so a thread that holds it
  // may wait for tasks.
  SubmitMutex& submit_mutex() noexcept { return submit_mutex_; }

  // Enqueues one task into several streams (a collective over local devices): the task starts after
  // the earlier tasks of all these streams, and later tasks of each stream start after it.
  // context.stream is the first of them. Otherwise as Stream::enqueue.
  virtual Event enqueue_group(std::span<Stream* const> streams, const Task& task,
                              std::span<const Event> waits) = 0;

  // Whether every stream of the backend would run a task of that cost, if the task waits for
  // nothing, before enqueue() returns (Stream::runs_at_once, Stream::overtakes). May return false
  // although every stream would. The caller holds the submit mutex. `thread`: the state of the
  // calling thread.
  virtual bool all_run_at_once(std::int64_t /*cost_ns*/,
                               const detail::ThreadState& /*thread*/) const noexcept {
    return false;
  }

  // Between begin_capture and end_capture, what this thread enqueues is recorded and not run.
  // Events returned meanwhile may only be used as waits of later captured tasks, and count as done
  // after the capture. On this thread, waiting, synchronising, allocating without a rehearsal or a
  // layout (core/device/plan_memory.h), and enqueueing a task with a wait that is neither captured
  // nor done throw Error. Other threads are not affected. begin_capture throws Error if this thread
  // captures already or runs a task, and DeviceError after fork(). The caller does not hold the
  // submit mutex.
  virtual void begin_capture() = 0;
  virtual Ref<Graph> end_capture() = 0;
  virtual int captured() const noexcept = 0;  // the number of tasks in this thread's capture so far
  // Drops what was captured; does nothing where this thread does not capture.
  virtual void abort_capture() noexcept = 0;

  // Waits for everything that was enqueued so far. Then rethrows the first error of a task that no
  // wait has reported, once. The caller does not hold the submit mutex.
  virtual void synchronize() = 0;

  virtual int workers() const noexcept = 0;  // how many threads run tasks
  // The setting that reproduces this run's interleaving of tasks, "SHMAP_EXECUTOR=seeded:7"; ""
  // where there is none.
  virtual std::string repro() const = 0;
  // Called when the process exits: the threads finish their current tasks and start no more; waits
  // still work.
  virtual void stop() noexcept = 0;

 protected:
  SubmitMutex submit_mutex_;
};

// A capture that is aborted when the scope ends without end(), as by an exception.
class CaptureScope {
 public:
  explicit CaptureScope(Backend& backend) : backend_(&backend) { backend.begin_capture(); }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
  ~CaptureScope() {
    if (backend_ != nullptr) backend_->abort_capture();
  }
  Ref<Graph> end() {
    Backend* backend = backend_;
    backend_ = nullptr;
    return backend->end_capture();
  }

 private:
  Backend* backend_;
};

// True while this thread captures.
inline bool capturing(const detail::ThreadState& thread = detail::thread_state) noexcept {
  return thread.capture != nullptr;
}

}  // namespace shmap
