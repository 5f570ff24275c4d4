// Backend: the devices of one kind that this process drives.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>

#include "core/base/intrusive.h"
#include "core/base/thread_state.h"
#include "core/device/graph.h"
#include "core/device/memory_space.h"
#include "core/device/stream.h"
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
  MemorySpace* space;  // shared with others, or its own
  Stream* compute;
  Stream* compute2;  // for work that alternates between two queues
  Stream* comm;
};

// True while this thread runs a task: then array operations, waits and enqueueing are errors.
inline bool in_task(const detail::ThreadState& thread = detail::thread_state) noexcept {
  return thread.task != nullptr;
}

// The lock of those who enqueue. A task may run on a thread that holds it (at enqueue, or where a
// wait helps), so taking it inside of a task throws Error instead of waiting for itself.
class SubmitMutex {
 public:
  void lock() {
    if (in_task()) [[unlikely]]
      throw_in_task();
    mutex_.lock();
  }
  void unlock() noexcept { mutex_.unlock(); }

 private:
  [[noreturn]] static void throw_in_task();
  std::mutex mutex_;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual DeviceKind kind() const noexcept = 0;
  virtual const char* name() const noexcept = 0;  // "cpu", "cuda"
  // True where host code may read and write the devices' memory, as quiet() allows, by its address.
  virtual bool host_addressable() const noexcept = 0;
  virtual std::span<const LocalDevice> devices() const noexcept = 0;
  // The number of the hardware behind a device, as its own interface counts (CUDA's ordinal).
  virtual int native_number(int /*index*/) const noexcept { return 0; }
  virtual std::span<MemorySpace* const> spaces() const noexcept = 0;

  // Held while enqueueing, for a whole step over all devices, so that steps of two threads don't
  // interleave. Tasks cannot take it, so waiting while holding it is safe (if unkind).
  SubmitMutex& submit_mutex() noexcept { return submit_mutex_; }

  // One task that is in several streams at once (a collective over local devices): it starts after
  // the earlier tasks of each, and later tasks of each come after it. context.stream is the first.
  // Otherwise as Stream::enqueue.
  virtual Event enqueue_group(std::span<Stream* const> streams, const Task& task,
                              std::span<const Event> waits) = 0;

  // Between the two, what this thread enqueues is recorded instead of run; events returned then are
  // only good as waits of later captured tasks, and count as done once the capture is over.
  // Waiting, synchronising, allocating, and enqueueing with a wait that is neither captured nor
  // done throw Error. Other threads are not affected. The caller does not hold the submit mutex.
  virtual void begin_capture() = 0;
  virtual Ref<Graph> end_capture() = 0;
  virtual int captured() const noexcept = 0;  // tasks of this thread's capture so far
  virtual void
  abort_capture() noexcept = 0;  // drops what was captured; nothing where not capturing

  // Waits for all that was enqueued so far. Then rethrows the first task error that nobody has seen
  // yet, once. The caller does not hold the submit mutex.
  virtual void synchronize() = 0;

  // Calls run(args, part) for each part, on the workers and this thread, and returns when all are
  // done; rethrows the first error. Inside a task it runs on this thread alone.
  virtual void run_parts(int parts, void (*run)(void* args, int part), void* args) = 0;

  virtual int workers() const noexcept = 0;  // threads that tasks can run on at once
  // How to see the same interleaving again, "SHMAP_EXECUTOR=seeded:7"; "" where there is no way.
  virtual std::string repro() const = 0;
  // At process exit: threads finish what they run and take no more; waits still work.
  virtual void stop() noexcept = 0;

 protected:
  SubmitMutex submit_mutex_;
};

// fn(part) for each part in [0, parts): see Backend::run_parts.
template <class F>
void parallel_for(Backend& backend, int parts, F&& fn) {
  backend.run_parts(
      parts, [](void* f, int part) { (*static_cast<std::remove_reference_t<F>*>(f))(part); },
      const_cast<void*>(static_cast<const void*>(&fn)));
}

// Abandons the capture unless it was ended: what a scope that captures should hold.
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
