// Runtime: the backends and devices of this process, made at their first use.
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
  // The device string in use, "cpu:8".
  const std::string& device_string() const noexcept { return device_string_; }
  // The backend of the devices. There is exactly one, whose kernels run all operations.
  Backend& backend() const noexcept { return *backends_.front(); }
  std::span<const std::unique_ptr<Backend>> backends() const noexcept { return backends_; }
  std::span<const LocalDevice> local_devices() const noexcept { return backend().devices(); }
  // The devices of all processes, in the order of their ids.
  const std::vector<Device>& devices() const noexcept { return devices_; }
  // The local device with that id; DeviceError where another process drives it.
  const LocalDevice& local_device(const Device& device) const;
  int process_index() const noexcept { return process_index_; }
  int process_count() const noexcept { return process_count_; }

  // runtime() makes the Runtime of the process; tests may make others. Reads environment variables
  // only through core/base/env.h.
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
}  // namespace detail

// The runtime, started where it is not running. It is never destroyed. Throws as init() does;
// DeviceError in a child that was forked after the start.
inline Runtime& runtime() {
  Runtime* r = detail::the_runtime.load(std::memory_order_acquire);
  return r != nullptr ? *r : detail::start_runtime(nullptr);
}

}  // namespace shmap
