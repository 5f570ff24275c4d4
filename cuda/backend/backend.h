// CudaBackend: GPUs, or virtual devices on one GPU.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/device/backend.h"
#include "core/device/failure_log.h"
#include "core/device/spec.h"
#include "core/runtime/launch.h"
#include "cuda/backend/capture.h"
#include "cuda/backend/stream.h"
#include "cuda/device/event_pool.h"
#include "cuda/device/graph_choice.h"
#include "cuda/device/launch_thread.h"
#include "cuda/device/memory.h"
#include "cuda/device/queue.h"
#include "cuda/device/span_log.h"
#include "cuda/driver/health.h"

namespace shmap::cuda {

class CudaGraph;

class CudaBackend final : public Backend {
 public:
  // memory_limit: bytes of each space; -1: the free memory, divided among the spaces of a GPU.
  // Throws DeviceError where the GPUs do not exist, or are too small for so many devices.
  CudaBackend(const DeviceSpec& spec, int first_id, int process_index, std::int64_t memory_limit);
  // Waits for all work. The backend's buffers and graphs must be destroyed before.
  ~CudaBackend() override;

  DeviceKind kind() const noexcept override { return DeviceKind::cuda; }
  std::span<const LocalDevice> devices() const noexcept override { return devices_; }
  std::span<MemorySpace* const> spaces() const noexcept override { return space_list_; }
  Event enqueue_group(std::span<Stream* const> streams, const Task& task,
                      std::span<const Event> waits) override;
  void begin_capture() override;
  Ref<Graph> end_capture() override;
  int captured() const noexcept override;
  void abort_capture() noexcept override;
  void synchronize() override;
  int workers() const noexcept override { return 1; }
  std::string repro() const override { return ""; }
  void stop() noexcept override;

  // Enqueues one task into several streams independently: the work that the task puts into
  // streams[i] (native_in_group) starts after waits[i] and after the earlier work of that stream,
  // independently of the other streams' waits, and the i-th returned event is the event of
  // streams[i]. A failed event in the data of any waits[i] fails all. For the NCCL calls of a
  // group, which wait for each other on the GPUs. Otherwise the same as enqueue_group.
  std::vector<Event> enqueue_each(std::span<Stream* const> streams, const Task& task,
                                  std::span<const TaskWaits> waits);

  Health& health() const noexcept { return *health_; }
  // Called by the streams, captures and graphs of this backend.
  Event submit(std::span<CudaStream* const> streams, const Task& task, std::span<const Event> waits,
               std::span<const Event> after);
  Queue& launch_queue(int device_index);  // for graphs that begin on that device
  Queue& launch_queue_of(int gpu) { return *launch_queues_.at(gpu); }
  // The launch thread of a GPU; null once the process exits. Throws std::system_error.
  LaunchThread* launch_thread(int gpu);
  ShadowStreams& shadows() noexcept { return shadows_; }
  Ref<Failure> add_failure(std::exception_ptr error) noexcept {
    return health_->failures().add(std::move(error));
  }
  // Makes `queue` wait for those events; returns how many are pending. Blocks for events of other
  // backends.
  int add_waits(Queue& queue, std::span<const Event> waits);
  // Calls task.run for each part; returns null, or the exception or the last CUDA error of a call.
  Ref<Failure> run(const Task& task, Stream& stream, cudaStream_t native) noexcept;
  // Runs a task that is in those streams, outside of captures.
  Ref<Failure> run_in(std::span<CudaStream* const> streams, const Task& task);
  SpanLog& spans() noexcept { return spans_; }
  // note_untold: the timeline does not have the times of the graph's last launch yet.
  // forget_untold: it has them, or will never have them.
  void note_untold(CudaGraph& graph);
  void forget_untold(CudaGraph& graph) noexcept;

 private:
  void make_spaces(const DeviceSpec& spec, const std::vector<int>& gpus, int first_id,
                   std::int64_t memory_limit);
  static std::string unfinished(const void* backend);
  bool graph_of_each_gpu();
  void check_enqueues(const Task& task) const;

  Ref<Health> health_;
  double warn_sec_, timeout_sec_;
  std::map<int, Ref<EventPool>> events_;  // by GPU
  std::map<int, Ref<Queue>> launch_queues_;
  ShadowStreams shadows_;
  SpanLog spans_;
  std::mutex untold_mutex_;
  std::vector<CudaGraph*> untold_;
  std::deque<CudaMemorySpace> spaces_;
  std::vector<MemorySpace*> space_list_;
  std::deque<CudaStream> streams_;
  std::vector<LocalDevice> devices_;
  std::vector<int> gpu_of_;  // by device index
  std::mutex graphs_mutex_;  // guards the members below
  GraphsOf graphs_of_;
  bool dependent_launches_ = false;                              // where a graph has one GPU
  std::map<int, std::unique_ptr<LaunchThread>> launch_threads_;  // by GPU
  bool stopped_ = false;
};

std::unique_ptr<Backend> make_backend(const DeviceSpec& spec, int first_id, int process_index);

}  // namespace shmap::cuda
