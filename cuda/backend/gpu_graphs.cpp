#include "cuda/backend/gpu_graphs.h"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "cuda/backend/backend.h"
#include "cuda/backend/stream.h"
#include "cuda/device/queue.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"

namespace shmap::cuda {
namespace {

Ref<Mark> new_mark(Queue& queue) { return make_ref<Mark>(Ref<EventPool>(&queue.events()), 0u); }

void record(const Mark& mark, Queue& queue) {
  const GpuScope gpu(queue.gpu());
  check(cudaEventRecord(mark.event(), queue.stream()), "cudaEventRecord");
}

void wait(Queue& queue, cudaEvent_t event) {
  const GpuScope gpu(queue.gpu());
  check(cudaStreamWaitEvent(queue.stream(), event, 0), "cudaStreamWaitEvent");
}

bool has(const std::vector<Queue*>& queues, const Queue* queue) {
  return std::ranges::find(queues, queue) != queues.end();
}

}  // namespace

GpuGraphs::GpuGraphs(CudaBackend& backend, Capture& capture, Queue& leader)
    : backend_(backend), leader_(leader), queues_{&leader} {
  try {
    make_graphs(capture);
    connect(capture);
  } catch (...) {
    for (Phase& phase : phases_)
      for (SubGraph& part : phase.parts)
        if (part.exec != nullptr) note(cudaGraphExecDestroy(part.exec));
    throw;
  }
}

GpuGraphs::~GpuGraphs() {
  for (Phase& phase : phases_)
    for (SubGraph& part : phase.parts)
      if (part.exec != nullptr) note(cudaGraphExecDestroy(part.exec));
}

GpuGraphs::Phase& GpuGraphs::phase(std::int32_t number) {
  const auto at = static_cast<std::size_t>(number);
  if (phases_.size() <= at) phases_.resize(at + 1);
  return phases_[at];
}

void GpuGraphs::make_graphs(Capture& capture) {
  for (Capture::SubRecording& recorded : capture.recordings()) {
    SubGraph part;
    part.queue = &backend_.launch_queue_of(recorded.gpu);
    part.phase = recorded.phase;
    if (!has(queues_, part.queue)) queues_.push_back(part.queue);
    if (part.queue != &leader_) part.thread = backend_.launch_thread(recorded.gpu);
    std::vector<SubGraph>& parts = phase(recorded.phase).parts;
    parts.push_back(std::move(part));
    if (cudaGraph_t graph = recorded.recording->finish()) {
      const GpuScope gpu(recorded.gpu);
      const cudaError_t code =
          cudaGraphInstantiate(&parts.back().exec, graph, cudaGraphInstantiateFlagUseNodePriority);
      note(cudaGraphDestroy(graph));
      check(code, "cudaGraphInstantiate");
    }
  }
  for (const Capture::Node& node : capture.nodes()) {
    if (!node.place.runs_directly()) continue;
    Direct direct;
    direct.task = node.task;
    direct.streams = node.streams;
    direct.phase = node.place.phase;
    for (const CudaStream* s : node.streams) {
      Queue* queue = &backend_.launch_queue_of(s->queue().gpu());
      if (!has(direct.queues, queue)) direct.queues.push_back(queue);
      if (!has(queues_, queue)) queues_.push_back(queue);
    }
    direct.after = new_mark(node.streams.front()->queue());
    Phase& here = phase(node.place.phase);
    for (Queue* queue : direct.queues) {
      if (std::ranges::find(here.forks, queue, &Fork::queue) == here.forks.end())
        here.forks.push_back({queue, new_mark(*queue), false});
    }
    here.directs.push_back(std::move(direct));
  }
  // The caller launches the leader's graph.
  for (Phase& phase : phases_) {
    std::stable_partition(phase.parts.begin(), phase.parts.end(),
                          [&](const SubGraph& part) { return part.queue == &leader_; });
  }
}

// Finds the events that each graph and task waits for. A queue is in order, so the last graph of
// another GPU is enough; tasks that run directly are already awaited by the queues of their GPUs.
void GpuGraphs::connect(Capture& capture) {
  std::vector<Direct*> direct_of(capture.nodes().size());
  std::vector<SubGraph*> part_of(capture.nodes().size());
  {
    std::map<std::int32_t, std::size_t> seen;  // tasks of a phase that run directly, in the order
                                               // of capture
    for (std::size_t i = 0; i < capture.nodes().size(); ++i) {
      const Capture::Node& node = capture.nodes()[i];
      Phase& in = phase(node.place.phase);
      if (node.place.runs_directly()) {
        direct_of[i] = &in.directs[seen[node.place.phase]++];
      } else {
        const Queue* queue = &backend_.launch_queue_of(node.streams.front()->queue().gpu());
        part_of[i] = &*std::ranges::find(in.parts, queue, &SubGraph::queue);
      }
    }
  }
  // For each waiting graph or task: its last predecessor in each other queue, and the direct tasks
  // of other GPUs.
  struct Wanted {
    std::map<Queue*, SubGraph*> parts;
    std::vector<Direct*> directs;
  };
  std::map<const void*, Wanted> wanted;
  for (std::size_t i = 0; i < capture.nodes().size(); ++i) {
    const std::vector<Queue*> own =
        direct_of[i] != nullptr ? direct_of[i]->queues : std::vector<Queue*>{part_of[i]->queue};
    Wanted& here = wanted[direct_of[i] != nullptr ? static_cast<const void*>(direct_of[i])
                                                  : static_cast<const void*>(part_of[i])];
    for (std::int32_t task : capture.nodes()[i].before) {
      const auto b = static_cast<std::size_t>(task);
      if (Direct* before = direct_of[b]) {
        const bool awaited =
            std::ranges::any_of(own, [&](Queue* q) { return has(before->queues, q); });
        if (!awaited && std::ranges::find(here.directs, before) == here.directs.end())
          here.directs.push_back(before);
      } else if (!has(own, part_of[b]->queue)) {
        SubGraph*& last = here.parts[part_of[b]->queue];
        if (last == nullptr || last->phase < part_of[b]->phase) last = part_of[b];
      }
    }
  }
  const auto events_of = [&](const Wanted& these, std::vector<cudaEvent_t>& waits) {
    for (const auto& [queue, part] : these.parts) {
      if (!part->after) part->after = new_mark(*queue);
      waits.push_back(part->after->event());
    }
    for (const Direct* direct : these.directs) waits.push_back(direct->after->event());
  };
  std::map<Queue*, SubGraph*> last_part;
  std::map<Queue*, std::int32_t> last_phase;
  start_ = new_mark(leader_);
  last_phase[&leader_] = -1;
  for (std::size_t p = 0; p < phases_.size(); ++p) {
    for (Fork& fork : phases_[p].forks) fork.first = last_phase.emplace(fork.queue, -1).second;
    for (Direct& direct : phases_[p].directs) events_of(wanted[&direct], direct.waits);
    for (SubGraph& part : phases_[p].parts) {
      if (last_phase.emplace(part.queue, -1).second) part.waits.push_back(start_->event());
      events_of(wanted[&part], part.waits);
      last_part[part.queue] = &part;
      last_phase[part.queue] = part.phase;
    }
    for (const Direct& direct : phases_[p].directs)
      for (Queue* queue : direct.queues) last_phase[queue] = direct.phase;
  }
  for (const auto& [queue, part] : last_part) {
    if (queue == &leader_) continue;
    if (!part->after) part->after = new_mark(*queue);
    ends_.push_back(part->after->event());
  }
  for (const Phase& phase : phases_) {
    for (const Direct& direct : phase.directs) {
      const bool awaited = std::ranges::any_of(direct.queues, [&](Queue* queue) {
        return queue == &leader_ || last_phase[queue] > direct.phase;
      });
      if (!awaited) ends_.push_back(direct.after->event());
    }
  }
}

cudaError_t GpuGraphs::launch_graph(void* arg) noexcept {
  const SubGraph& part = *static_cast<const SubGraph*>(arg);
  cudaStream_t stream = part.queue->stream();
  for (cudaEvent_t event : part.waits) {
    if (const cudaError_t code = cudaStreamWaitEvent(stream, event, 0); code != cudaSuccess)
      return code;
  }
  if (part.exec != nullptr) {
    if (const cudaError_t code = cudaGraphLaunch(part.exec, stream); code != cudaSuccess)
      return code;
  }
  return part.after ? cudaEventRecord(part.after->event(), stream) : cudaSuccess;
}

cudaError_t GpuGraphs::launch_graphs(Phase& phase) {
  std::vector<SubGraph>& parts = phase.parts;
  // This thread launches the first graph, because it would otherwise only wait.
  std::exception_ptr thrown;
  const auto here = [&](SubGraph& part) {
    try {
      const GpuScope gpu(part.queue->gpu());
      return launch_graph(&part);
    } catch (...) {
      if (!thrown) thrown = std::current_exception();
      return cudaSuccess;
    }
  };
  std::uint64_t started = 0;
  cudaError_t first = cudaSuccess;
  const auto heed = [&](cudaError_t code) {
    if (first == cudaSuccess) first = code;
    if (code != cudaSuccess) cudaGetLastError();
  };
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].thread != nullptr && i < 64 && parts[i].thread->start(launch_graph, &parts[i]))
      started |= std::uint64_t{1} << i;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i >= 64 || (started >> i & 1) == 0) heed(here(parts[i]));
  }
  for (std::size_t i = 1; i < std::min<std::size_t>(parts.size(), 64); ++i) {
    if ((started >> i & 1) != 0) heed(parts[i].thread->wait());
  }
  if (thrown) std::rethrow_exception(thrown);
  return first;
}

Ref<Failure> GpuGraphs::launch_directs(Phase& phase) {
  for (const Fork& fork : phase.forks) {
    if (fork.first) wait(*fork.queue, start_->event());
    record(*fork.at, *fork.queue);
  }
  for (Direct& direct : phase.directs) {
    Queue& own = direct.streams.front()->queue();
    for (const Fork& fork : phase.forks)
      if (has(direct.queues, fork.queue)) wait(own, fork.at->event());
    for (cudaEvent_t event : direct.waits) wait(own, event);
    if (Ref<Failure> failure = backend_.run_in(direct.streams, direct.task)) return failure;
    record(*direct.after, own);
  }
  return Ref<Failure>();
}

Ref<Failure> GpuGraphs::launch_phase(Phase& phase) {
  if (!phase.directs.empty()) {
    if (Ref<Failure> failure = launch_directs(phase)) return failure;
  }
  check(launch_graphs(phase), "cudaGraphLaunch of the graphs of single GPUs");
  for (const Direct& direct : phase.directs)
    for (Queue* queue : direct.queues) wait(*queue, direct.after->event());
  return Ref<Failure>();
}

Ref<Failure> GpuGraphs::launch() {
  Ref<Failure> failure;
  try {
    for (Queue* queue : queues_) queue->stream();  // created here and not on the launch threads
    record(*start_, leader_);
    for (Phase& phase : phases_) {
      failure = launch_phase(phase);
      if (failure) break;
    }
    if (!failure)
      for (cudaEvent_t event : ends_) wait(leader_, event);
  } catch (...) {
    failure = backend_.add_failure(std::current_exception());
  }
  if (failure) join_after_failure();
  return failure;
}

// The leader waits even for work that was enqueued before the failure.
void GpuGraphs::join_after_failure() noexcept {
  const auto join = [&](Queue& queue) {
    try {
      const Ref<Mark> mark = new_mark(queue);
      record(*mark, queue);
      wait(leader_, mark->event());
    } catch (...) {  // the GPU is lost, or got no work
    }
  };
  for (Queue* queue : queues_)
    if (queue != &leader_) join(*queue);
  for (Phase& phase : phases_)
    for (Direct& direct : phase.directs) join(direct.streams.front()->queue());
}

}  // namespace shmap::cuda
