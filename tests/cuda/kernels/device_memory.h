// Code that the tests of CUDA's raw kernels share: memory of the first device, and calls on its
// stream.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/device/runtime.h"
#include "core/ir/trace.h"
#include "core/runtime/device_ops.h"

namespace shmap::cuda::testing {

// Skips where the devices are not GPUs.
class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    ensure_started();  // which registers what devices do
    if (runtime().backend().kind() != DeviceKind::cuda)
      GTEST_SKIP() << "the devices are " << runtime().device_string()
                   << ", and this test needs a GPU";
  }
};

// Calls f(native stream), which enqueues kernels, and waits for them; rethrows what f throws.
template <class F>
void on_stream(F&& f) {
  Backend& backend = runtime().backend();
  Task task;
  task.run = [](void* args, const TaskContext& context) {
    (*static_cast<std::remove_reference_t<F>*>(args))(context.native);
  };
  task.drop = [](void*) noexcept {};
  task.args = const_cast<void*>(static_cast<const void*>(&f));
  task.name = "test";
  Event event;
  {
    const std::lock_guard lock(backend.submit_mutex());
    event = backend.devices()[0].compute->enqueue(task, {});
  }
  event.wait();
}

// `bytes` bytes of device memory that begin `offset` bytes after an aligned address, between guards
// that check() compares.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::int64_t bytes, std::int64_t offset = 0)
      : bytes_(bytes),
        offset_(kGuard + offset),
        buffer_(runtime().local_devices()[0].space->allocate(bytes + offset_ + kGuard)) {
    const std::vector<std::byte> all(static_cast<std::size_t>(bytes + offset_ + kGuard),
                                     std::byte{0x55});
    ops().host_to_device(buffer_->data(), all.data(), static_cast<std::int64_t>(all.size()));
  }
  template <class T>
  explicit DeviceBytes(const std::vector<T>& from, std::int64_t offset = 0)
      : DeviceBytes(static_cast<std::int64_t>(from.size() * sizeof(T)), offset) {
    if (bytes_ > 0) ops().host_to_device(data(), from.data(), bytes_);
  }
  void* data() const { return static_cast<std::byte*>(buffer_->data()) + offset_; }

  // Returns the contents; fails the test if something was written outside of them.
  template <class T>
  std::vector<T> read() const {
    std::vector<std::byte> all(static_cast<std::size_t>(bytes_ + offset_ + kGuard));
    ops().device_to_host(all.data(), buffer_->data(), static_cast<std::int64_t>(all.size()));
    std::vector<T> result(static_cast<std::size_t>(bytes_) / sizeof(T));
    if (bytes_ > 0)
      std::memcpy(static_cast<void*>(result.data()), all.data() + offset_,
                  static_cast<std::size_t>(bytes_));
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(all.size()); ++i) {
      const bool inside = i >= offset_ && i < offset_ + bytes_;
      if (inside || all[static_cast<std::size_t>(i)] == std::byte{0x55}) continue;
      ADD_FAILURE() << "byte " << i - offset_ << " of " << bytes_ << " was written";
      break;
    }
    return result;
  }

 private:
  static constexpr std::int64_t kGuard = 64;
  static const DeviceOps& ops() { return device_ops(DeviceKind::cuda); }
  std::int64_t bytes_, offset_;
  BufferRef buffer_;
};

}  // namespace shmap::cuda::testing
