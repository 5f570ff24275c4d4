#include "cuda/backend/backend.h"

#include <algorithm>
#include <utility>

#include "core/base/counted.h"
#include "core/base/env.h"
#include "core/device/fork_guard.h"
#include "core/device/registry.h"
#include "cuda/backend/graph.h"
#include "cuda/device/completion.h"
#include "cuda/device/staged_link.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "shmap/error.h"

namespace shmap {
namespace cuda {
namespace {

// The least bytes of a memory space, and the driver's memory for the streams of a virtual device.
constexpr std::int64_t kLeastSpace = std::int64_t{16} << 20;
constexpr std::int64_t kBytesPerDevice = std::int64_t{1} << 20;
// The percentage of a GPU's free memory that spaces on it leave to libraries.
constexpr int kReservedPercent = 8;

std::string mib(std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// Dependent launches came with Hopper.
bool launches_dependently_on(int gpu) {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu),
        "cudaDeviceGetAttribute");
  return major >= 9;
}

std::int64_t free_memory(int gpu) {
  const GpuScope scope(gpu);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<std::int64_t>(free);
}

}  // namespace

CudaBackend::CudaBackend(const DeviceSpec& spec, int first_id, int process_index,
                         std::int64_t memory_limit)
    : warn_sec_(env::seconds(env::Var::collective_warn_sec)),
      timeout_sec_(env::seconds(env::Var::collective_timeout_sec)),
      graphs_of_(demanded_graphs()) {
  link_is_staged();  // so that an invalid value is reported at the start
  const std::vector<int> gpus = chosen_gpus(spec, present_gpus());
  health_ = make_ref<Health>(unfinished, this);
  enable_peer_access(gpus);
  dependent_launches_ =
      env::flag(env::Var::dependent_launch) && std::ranges::all_of(gpus, launches_dependently_on);
  make_spaces(spec, gpus, first_id, memory_limit);
  int least = 0, greatest = 0;  // greater priorities are smaller numbers
  {
    const GpuScope scope(gpus.front());
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  }
  const int count = spec.count > 0 ? spec.count : static_cast<int>(gpus.size());
  const int per_space = count / static_cast<int>(spaces_.size());
  for (int gpu : gpus) share_gpu(gpu, count / static_cast<int>(gpus.size()));
  for (int gpu : gpus) events_.emplace(gpu, make_ref<EventPool>(gpu));
  devices_.reserve(static_cast<std::size_t>(count));
  for (int d = 0; d < count; ++d) {
    const int gpu = spec.count > 0 ? gpus.front() : gpus[static_cast<std::size_t>(d)];
    gpu_of_.push_back(gpu);
    const auto stream = [&](StreamRole role, const char* label) {
      QueueOptions options{d, role, label, role == StreamRole::comm, warn_sec_, timeout_sec_};
      const int priority = role == StreamRole::comm ? greatest : least;
      return &streams_.emplace_back(*this,
                                    make_ref<Queue>(events_.at(gpu), health_, priority, options));
    };
    Stream* compute = stream(StreamRole::compute, "compute");
    Stream* comm = stream(StreamRole::comm, "communication");
    devices_.push_back({detail::DeviceAccess::make(first_id + d, process_index, DeviceKind::cuda),
                        d, space_list_[static_cast<std::size_t>(d / per_space)], compute, comm});
    if (!launch_queues_.contains(gpu)) {
      launch_queues_.emplace(gpu, make_ref<Queue>(events_.at(gpu), health_, least,
                                                  QueueOptions{d, StreamRole::compute, "launching",
                                                               false, warn_sec_, timeout_sec_}));
    }
  }
}

void CudaBackend::make_spaces(const DeviceSpec& spec, const std::vector<int>& gpus, int first_id,
                              std::int64_t memory_limit) {
  const int n = spec.count > 0 ? spec.spaces : static_cast<int>(gpus.size());
  std::int64_t bytes = 0;  // bytes that a space may grow to
  const int per_space = spec.count > 0 ? spec.count / n : 1;
  for (int s = 0; s < n; ++s) {
    const int gpu = spec.count > 0 ? gpus.front() : gpus[static_cast<std::size_t>(s)];
    std::int64_t limit = memory_limit;
    if (s == 0 || spec.count == 0) {
      const std::int64_t free = free_memory(gpu);
      const std::int64_t streams = spec.count * kBytesPerDevice;
      const std::int64_t shared = (free - streams) / 100 * (100 - kReservedPercent);
      const int on_gpu = spec.count > 0 ? n : 1;
      if (shared / on_gpu < kLeastSpace) {
        throw DeviceError(
            "GPU " + std::to_string(gpu) + " has " + mib(free) +
            " of free memory, too little for " + std::to_string(std::max(spec.count, 1)) +
            " devices in " + counted(on_gpu, "memory space") + ", which take " + mib(streams) +
            " for their streams and " + mib(kLeastSpace) +
            " a space at least: ask for fewer (SHMAP_DEVICES), or end what else uses this GPU");
      }
      // Spaces that share a GPU get equal parts of its memory; a single space may use all of it.
      if (on_gpu > 1 && memory_limit < 0) memory_limit = shared / on_gpu;
      limit = memory_limit;
      bytes = limit < 0 ? free : std::min(limit, free);
    }
    const int first = first_id + s * per_space;
    std::string name = "CudaDevice(id=" + std::to_string(first);
    if (per_space > 1) name += ".." + std::to_string(first + per_space - 1);
    spaces_.emplace_back(s, name + ")", gpu, limit, bytes, health_);
    space_list_.push_back(&spaces_.back());
  }
}

CudaBackend::~CudaBackend() {
  if (forked()) return;
  for (CudaStream& s : streams_) {
    try {
      s.queue().wait_here(s.queue().tail());
    } catch (...) {  // a destructor has no caller to report to
    }
  }
  for (auto& [gpu, queue] : launch_queues_) {
    try {
      queue->wait_here(queue->tail());
    } catch (...) {
    }
  }
  for (CudaStream& s : streams_) s.queue().close();
  for (auto& [gpu, queue] : launch_queues_) queue->close();
  shadows_.close();
  spans_.close();
  health_->detach();
}

std::string CudaBackend::unfinished(const void* backend) {
  constexpr int kShown = 6;
  const auto& self = *static_cast<const CudaBackend*>(backend);
  std::string text;
  int found = 0;
  const auto look = [&](const Queue& queue) {
    const std::uint64_t next = queue.completed() + 1;
    if (next > queue.tail() || ++found > kShown) return;
    text += (text.empty() ? "" : ", ") + queue.name_of(next);
    if (queue.tail() > next)
      text += " or one of the " + std::to_string(queue.tail() - next) + " after it";
  };
  for (const CudaStream& s : self.streams_) look(s.queue());
  for (const auto& [gpu, queue] : self.launch_queues_) look(*queue);
  if (found > kShown) text += ", and others";
  return text;
}

Queue& CudaBackend::launch_queue(int device_index) {
  return *launch_queues_.at(gpu_of_[static_cast<std::size_t>(device_index)]);
}

LaunchThread* CudaBackend::launch_thread(int gpu) {
  std::lock_guard lock(graphs_mutex_);
  if (stopped_) return nullptr;
  std::unique_ptr<LaunchThread>& thread = launch_threads_[gpu];
  if (!thread) thread = std::make_unique<LaunchThread>(gpu);
  return thread.get();
}

bool CudaBackend::graph_of_each_gpu() {
  if (launch_queues_.size() == 1) return false;
  std::lock_guard lock(graphs_mutex_);
  if (graphs_of_ == GraphsOf::unknown) {
    const std::size_t last = spaces_.size() - 1;
    graphs_of_ = take_graphs_of_several_gpus(spaces_[0], launch_queues_.begin()->first,
                                             spaces_[last], launch_queues_.rbegin()->first)
                     ? GraphsOf::all_gpus
                     : GraphsOf::each_gpu;
  }
  return graphs_of_ == GraphsOf::each_gpu;
}

void CudaBackend::begin_capture() {
  detail::check_begins_capture();
  health_->check("begin_capture");
  const bool each_gpu = graph_of_each_gpu(), one_gpu = events_.size() == 1;
  CapturedResources* const capture =
      new Capture(*this, each_gpu, dependent_launches_ && (each_gpu || one_gpu));
  detail::thread_state.capture = capture;
}

Ref<Graph> CudaBackend::end_capture() {
  Capture* const capture = capture_of_thread();
  if (capture == nullptr || &capture->backend() != this) {
    throw Error("end_capture: this thread does not capture this backend");
  }
  // The thread still counts as capturing here, because the CUDA runtime treats it so until the
  // recording ends.
  struct End {
    ~End() {
      Capture* const ended = capture_of_thread();
      detail::thread_state.capture = nullptr;
      delete ended;
    }
  } end;
  return make_ref<CudaGraph>(*capture);
}

int CudaBackend::captured() const noexcept {
  Capture* const capture = capture_of_thread();
  return capture != nullptr && &capture->backend() == this
             ? static_cast<int>(capture->nodes().size())
             : 0;
}

void CudaBackend::abort_capture() noexcept {
  Capture* const capture = capture_of_thread();
  if (capture == nullptr || &capture->backend() != this) return;
  delete capture;
  detail::thread_state.capture = nullptr;
}

void CudaBackend::synchronize() {
  if (capturing()) throw Error("synchronize while this thread captures a graph");
  if (in_task()) {
    throw Error("synchronize inside the task '" + std::string(detail::thread_state.task) + "'");
  }
  if (forked()) throw_forked();
  health_->check("synchronize");
  std::vector<Point> last;
  {
    std::lock_guard lock(submit_mutex_);
    for (CudaStream& s : streams_) {
      if (!s.queue().idle()) last.push_back(s.queue().last());
    }
    for (auto& [gpu, queue] : launch_queues_) last.push_back({queue, queue->tail()});
  }
  for (const Point& p : last) p.queue->wait_here(p.number);
  health_->check("synchronize");
  {
    std::lock_guard submit(submit_mutex_);  // another thread may launch graphs
    std::lock_guard lock(untold_mutex_);
    std::erase_if(untold_, [](CudaGraph* graph) { return graph->tell_if_done(); });
    spans_.deliver();
  }
  health_->failures().rethrow_unreported();
}

void CudaBackend::note_untold(CudaGraph& graph) {
  std::lock_guard lock(untold_mutex_);
  untold_.push_back(&graph);
}

void CudaBackend::forget_untold(CudaGraph& graph) noexcept {
  std::lock_guard lock(untold_mutex_);
  std::erase(untold_, &graph);
}

// The driver ends with the process. Later graphs are launched by the threads that call for them.
void CudaBackend::stop() noexcept {
  if (forked()) return;
  std::lock_guard lock(graphs_mutex_);
  stopped_ = true;
  for (auto& [gpu, thread] : launch_threads_) thread->stop();
}

std::unique_ptr<Backend> make_backend(const DeviceSpec& spec, int first_id, int process_index) {
  return std::make_unique<CudaBackend>(spec, first_id, process_index,
                                       env::bytes(env::Var::memory_limit));
}

}  // namespace cuda

BackendFactory cuda_backend() { return {DeviceKind::cuda, cuda::make_backend, cuda::default_gpus}; }

}  // namespace shmap
