// CudaStream: a stream of a device, over a queue of its GPU.
#pragma once
#include <cuda_runtime_api.h>

#include <span>

#include "core/device/stream.h"
#include "cuda/device/queue.h"
#include "cuda/graph/capture.h"

namespace shmap::cuda {

class CudaBackend;

class CudaStream final : public Stream {
 public:
  CudaStream(CudaBackend& backend, Ref<Queue> queue) noexcept
      : Stream(queue->options().device_index, queue->options().role),
        backend_(backend),
        queue_(std::move(queue)) {}

  // Calls task.run before it returns, with context.native the cudaStream_t to put work into; then
  // drops the args, unless this thread captures. While it captures the graph keeps them, since its
  // nodes may read host memory of theirs, and an error of task.run is thrown from here.
  Event enqueue(const Task& task, std::span<const Event> waits) override;
  bool runs_at_once(std::int64_t cost_ns, const detail::ThreadState& thread) noexcept override;
  bool calls_at_enqueue(const detail::ThreadState& thread) noexcept override;
  Event record() override;
  bool idle() noexcept override;

  Queue& queue() const noexcept { return *queue_; }
  CudaBackend& backend() const noexcept { return backend_; }

 private:
  CudaBackend& backend_;
  const Ref<Queue> queue_;
};

// In the run of a group task: the cudaStream_t of a member stream, in which work is in order after
// what that stream had before, and before what it gets later. (That of the first is
// context.native; the others join when they are asked for.) Throws DeviceError.
cudaStream_t native_in_group(Stream& member);

// Keeps `object` until the graph is gone that this thread captures. False where it captures none:
// then what the caller enqueues runs once.
bool keep_with_graph(Ref<Kept> object);

// True where this thread captures a program whose graphs are of one GPU each.
bool captures_graph_of_one_gpu() noexcept;

// In the run of a task: of the backend that runs it. Throws Error elsewhere.
Ref<Health> health_of_task();

}  // namespace shmap::cuda
