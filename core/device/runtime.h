// Runtime: the backends and devices of this process, made at first use.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device/backend.h"
#include "shmap/device.h"

namespace shmap {

class Runtime {
 public:
  // The device string in force, "cpu:8".
  const std::string& device_string() const noexcept { return device_string_; }
  // The backend of the devices; there is one (its kind's kernels are what ops run on).
  Backend& backend() const noexcept { return *backends_.front(); }
  std::span<const std::unique_ptr<Backend>> backends() const noexcept { return backends_; }
  std::span<const LocalDevice> local_devices() const noexcept { return backend().devices(); }
  // All devices of all processes, in id order.
  const std::vector<Device>& devices() const noexcept { return devices_; }
  // This process's device with that id; throws DeviceError where another process drives it.
  const LocalDevice& local_device(const Device& device) const;
  int process_index() const noexcept { return process_index_; }
  int process_count() const noexcept { return process_count_; }

  // Made by runtime(); a test may make more of them. Reads no variable but through its arguments
  // and core/base/env.h.
  explicit Runtime(const Options& options);
  ~Runtime();

 private:
  std::string device_string_;
  int process_index_ = 0;
  int process_count_ = 1;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<Device> devices_;
};

namespace detail {
extern std::atomic<Runtime*> the_runtime;
Runtime& start_runtime(const Options* options);

// The backends are stopped, so that no thread of theirs runs a task, before anything is destroyed
// at exit that tasks may use. What is destroyed then, and in what order, grows as the process runs:
// variables of libraries that were opened late go first. So there are two ways, both idempotent.
//
// Where the main thread leaves: before all of it. Only takes note of the calling thread.
void stop_when_main_ends() noexcept;
// Where another thread calls exit(): before all that was registered so far. For whoever opens a
// library that tasks call, or has it make something new.
void stop_first_at_exit() noexcept;
// `run` is called before the backends are stopped, while all that tasks use is still there, on the
// thread that leaves: for what has to be seen that nobody waited for. It may be called more than
// once. Any thread; each function is taken once.
void call_before_stop(void (*run)() noexcept);
}  // namespace detail

// The runtime, started if it has not been. It is never destroyed. Throws as init(); DeviceError in
// a child that was forked after the start.
inline Runtime& runtime() {
  Runtime* r = detail::the_runtime.load(std::memory_order_acquire);
  return r != nullptr ? *r : detail::start_runtime(nullptr);
}

}  // namespace shmap
