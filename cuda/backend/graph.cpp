#include "cuda/backend/graph.h"

#include <string>
#include <utility>

#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/timeline.h"
#include "cuda/backend/backend.h"
#include "cuda/device/completion.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "shmap/error.h"

namespace shmap::cuda {

CudaGraph::CudaGraph(Capture& capture)
    : backend_(capture.backend()),
      streams_(capture.streams()),
      queue_(&backend_.launch_queue(streams_.empty() ? 0 : streams_.front()->device_index())) {
  tasks_.reserve(capture.nodes().size());
  for (const Capture::Node& node : capture.nodes()) {
    edges_ += static_cast<int>(node.before.size());
    cost_ns_ += node.task.cost_ns;
    tasks_.push_back({node.task, node.streams, node.before});
    tasks_.back().task.drop = nullptr;
  }
  rehearsed_ = capture.rehearsed();
  if (capture.graph_of_each_gpu() && !rehearsed_ && !tasks_.empty()) {
    gpu_graphs_ = std::make_unique<GpuGraphs>(backend_, capture, *queue_);
  } else if (cudaGraph_t graph = capture.recordings().empty()
                                     ? nullptr
                                     : capture.recordings()[0].recording->finish()) {
    const GpuScope gpu(queue_->gpu());
    const cudaError_t code =
        cudaGraphInstantiate(&exec_, graph, cudaGraphInstantiateFlagUseNodePriority);
    note(cudaGraphDestroy(graph));
    check(code, "cudaGraphInstantiate");
  }
  kept_ = std::move(capture.kept());
  spans_.reserve(tasks_.size());
  for (std::size_t i = 0; i < tasks_.size(); ++i) {  // nothing fails from here on
    tasks_[i].task.drop = std::exchange(capture.nodes()[i].task.drop, nullptr);
    if (capture.nodes()[i].span.begin != nullptr) {
      spans_.push_back(std::exchange(capture.nodes()[i].span, Span()));
    }
  }
}

CudaGraph::~CudaGraph() {
  if (forked()) return;
  backend_.forget_untold(*this);
  try {
    queue_->wait_here(launched_);  // running work may read the args
  } catch (...) {
    // Leaked on purpose: the work still runs, and uses these objects.
    (void)new std::vector<Ref<GraphResource>>(std::move(kept_));
    return;
  }
  if (untold_) {
    try {
      tell();
    } catch (...) {  // only the trace lacks this launch
    }
  }
  for (const Span& span : spans_) backend_.spans().give_back(span);
  if (exec_ != nullptr) note(cudaGraphExecDestroy(exec_));
  gpu_graphs_.reset();
  for (const TaskRecord& task : tasks_) {
    if (task.task.drop != nullptr) task.task.drop(task.task.args);
  }
}

std::vector<GraphTask> CudaGraph::tasks() const {
  std::vector<GraphTask> all;
  all.reserve(tasks_.size());
  for (const TaskRecord& task : tasks_) {
    all.push_back({task.task.name,
                   {task.streams.begin(), task.streams.end()},
                   {task.before.begin(), task.before.end()}});
  }
  return all;
}

void CudaGraph::tell() {
  untold_ = false;
  for (const Span& span : spans_) backend_.spans().tell(span);
}

bool CudaGraph::tell_if_done() {
  if (!queue_->done(launched_)) return false;
  tell();
  return true;
}

Ref<Failure> CudaGraph::launch_here() {
  if (exec_ == nullptr && !gpu_graphs_) return Ref<Failure>();
  const GpuScope gpu(queue_->gpu());
  const bool timed = timeline_sink() != nullptr;
  Span whole;
  if (timed && !spans_.empty()) {
    if (untold_) {
      queue_->wait_here(launched_);
      tell();
    } else {
      backend_.note_untold(*this);
    }
    untold_ = true;
  } else if (timed) {
    Task task;
    task.name = "graph";
    whole = backend_.spans().begin(task, queue_->gpu(), places_of(streams_), queue_->stream(),
                                   /*captured=*/false);
  }
  Ref<Failure> failure;
  cudaError_t code = cudaSuccess;
  if (exec_ != nullptr) [[likely]] {
    code = cudaGraphLaunch(exec_, queue_->stream());
  } else {
    failure = gpu_graphs_->launch();
  }
  if (whole.begin != nullptr) {
    backend_.spans().end(whole, queue_->stream(), /*captured=*/false);
    backend_.spans().add(std::move(whole));
  }
  if (code != cudaSuccess) {
    try {
      throw_cuda_error(code, "cudaGraphLaunch");
    } catch (...) {
      failure = backend_.add_failure(std::current_exception());
    }
  }
  return failure;
}

Event CudaGraph::launch(std::span<const Event> waits, std::span<const Event> after,
                        std::uint64_t ticket) {
  if (capturing()) throw Error("launching a graph while this thread captures another");
  if (in_task()) {
    throw Error("launching a graph inside the task '" + std::string(detail::thread_state.task) +
                "'");
  }
  if (forked()) throw_forked();
  if (rehearsed_) throw Error("launching a graph that was captured in a rehearsal of its memory");
  backend_.health().check("launching a graph");
  Ref<Failure> failure = inherited_failure(&backend_, waits);
  const bool runs = !failure;
  const int pending = backend_.add_waits(*queue_, waits) + backend_.add_waits(*queue_, after);
  if (pending == 0) {
    if (!runs) return TaskCompletion::failed(&backend_, std::move(failure));
    if (tasks_.empty()) return Event();
  }
  if (runs) {
    for (CudaStream* s : streams_) s->queue().be_awaited_by(*queue_);
    failure = launch_here();
  }
  launched_ = queue_->append("graph");
  if (runs) {
    for (const Ref<GraphResource>& kept : kept_) kept->launched(ticket, *queue_, launched_);
    for (CudaStream* s : streams_) s->queue().close_gate(*queue_, launched_);
  }
  return TaskCompletion::make(&backend_, Ref<Queue>(queue_), launched_, std::move(failure));
}

}  // namespace shmap::cuda
