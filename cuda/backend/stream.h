// CudaStream: a stream of a device, over a queue of its GPU.
#pragma once
#include <cuda_runtime_api.h>

#include <span>
#include <utility>
#include <vector>

#include "core/device/stream.h"
#include "cuda/backend/capture.h"
#include "cuda/device/queue.h"

namespace shmap::cuda {

class CudaBackend;

class CudaStream final : public Stream {
 public:
  CudaStream(CudaBackend& backend, Ref<Queue> queue) noexcept
      : Stream(queue->options().device_index, queue->options().role),
        backend_(backend),
        queue_(std::move(queue)) {}

  // Calls task.run before it returns; context.native is the cudaStream_t for the task's work. Then
  // drops the args, unless this thread captures: a graph keeps the args, since its nodes may read
  // host memory in them. In a capture, errors of task.run are thrown from here.
  Event enqueue(const Task& task, std::span<const Event> waits,
                std::span<const Event> after) override;
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

// Called in the run of a group task: the cudaStream_t of a member stream, whose work is ordered
// after the stream's earlier work and before its later work. (context.native is the cudaStream_t of
// the first stream; another member joins the task when this is called.) Throws DeviceError.
cudaStream_t native_in_group(Stream& member);

// The local devices and roles of streams, for SpanLog.
std::vector<std::pair<int, StreamRole>> places_of(std::span<CudaStream* const> streams);

}  // namespace shmap::cuda
