// Mark: a cudaEvent that was recorded at some point of a queue. EventPool: the events for marks.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "core/base/intrusive.h"
#include "core/base/spin_lock.h"

namespace shmap::cuda {

// The events of one GPU, without timing. Any thread.
class EventPool : public RefCounted {
 public:
  explicit EventPool(int gpu) noexcept : gpu_(gpu) {}
  ~EventPool();
  // Throws DeviceError.
  cudaEvent_t take();
  void give(cudaEvent_t event) noexcept;
  int gpu() const noexcept { return gpu_; }
  std::int64_t made() const noexcept { return made_; }  // number of events made; for tests

 private:
  const int gpu_;
  SpinLock lock_;
  std::vector<cudaEvent_t> free_;
  std::int64_t made_ = 0;
};

// An event, which returns to the pool with the last reference.
class Mark : public RefCounted {
 public:
  Mark(Ref<EventPool> pool, std::uint64_t number)
      : pool_(std::move(pool)), event_(pool_->take()), number_(number) {}
  ~Mark() { pool_->give(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  cudaEvent_t event() const noexcept { return event_; }
  // The event is recorded after the queue's tasks up to this number. 0: for waits inside of a graph
  // or of a group task.
  std::uint64_t number() const noexcept { return number_; }

 private:
  Ref<EventPool> pool_;
  cudaEvent_t event_;
  const std::uint64_t number_;
};

}  // namespace shmap::cuda
