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

// Finds the events that each graph and task waits for. A queue is in order, so the last graph of
// another GPU is enough; tasks that run directly are already awaited by the queues of their GPUs.
class GpuGraphs::Connector {
 public:
  Connector(GpuGraphs& graphs, Capture& capture) : graphs_(graphs), capture_(capture) {}

  void run() {
    find_places();
    for (std::size_t i = 0; i < places_.size(); ++i) find_predecessors(i);
    graphs_.start_ = new_mark(graphs_.leader_);
    last_phase_[&graphs_.leader_] = -1;
    for (Phase& phase : graphs_.phases_) add_waits(phase);
    add_ends();
  }

 private:
  // What runs a captured task: a task that runs directly, or else a graph.
  struct Place {
    Direct* direct = nullptr;
    SubGraph* part = nullptr;
    const void* waiting() const {
      return direct != nullptr ? static_cast<const void*>(direct) : static_cast<const void*>(part);
    }
  };
  // For a waiting graph or task: its last predecessor in each other queue, and the direct tasks of
  // other GPUs.
  struct Wanted {
    std::map<Queue*, SubGraph*> parts;
    std::vector<Direct*> directs;
  };

  void find_places() {
    std::map<std::int32_t, std::size_t> seen;  // tasks of a phase that run directly, in the order
                                               // of capture
    for (const Capture::Node& node : capture_.nodes()) {
      Phase& in = graphs_.phase(node.place.phase);
      Place& place = places_.emplace_back();
      if (node.place.runs_directly()) {
        place.direct = &in.directs[seen[node.place.phase]++];
      } else {
        const Queue* queue = &graphs_.backend_.launch_queue_of(node.streams.front()->queue().gpu());
        place.part = &*std::ranges::find(in.parts, queue, &SubGraph::queue);
      }
    }
  }

  void find_predecessors(std::size_t node) {
    const Place& place = places_[node];
    const std::vector<Queue*> own =
        place.direct != nullptr ? place.direct->queues : std::vector<Queue*>{place.part->queue};
    Wanted& here = wanted_[place.waiting()];
    for (const std::int32_t task : capture_.nodes()[node].before) {
      const Place& before = places_[static_cast<std::size_t>(task)];
      if (before.direct != nullptr) {
        const bool awaited =
            std::ranges::any_of(own, [&](Queue* q) { return has(before.direct->queues, q); });
        if (!awaited && std::ranges::find(here.directs, before.direct) == here.directs.end())
          here.directs.push_back(before.direct);
      } else if (!has(own, before.part->queue)) {
        SubGraph*& last = here.parts[before.part->queue];
        if (last == nullptr || last->phase < before.part->phase) last = before.part;
      }
    }
  }

  static cudaEvent_t end_of(SubGraph& part) {
    if (!part.after) part.after = new_mark(*part.queue);
    return part.after->event();
  }

  void add_predecessors(const void* waiting, std::vector<cudaEvent_t>& waits) {
    const Wanted& these = wanted_[waiting];
    for (const auto& [queue, part] : these.parts) waits.push_back(end_of(*part));
    for (const Direct* direct : these.directs) waits.push_back(direct->after->event());
  }

  void add_waits(Phase& phase) {
    for (Fork& fork : phase.forks) fork.first = last_phase_.emplace(fork.queue, -1).second;
    for (Direct& direct : phase.directs) add_predecessors(&direct, direct.waits);
    for (SubGraph& part : phase.parts) {
      if (last_phase_.emplace(part.queue, -1).second) part.waits.push_back(graphs_.start_->event());
      add_predecessors(&part, part.waits);
      last_part_[part.queue] = &part;
      last_phase_[part.queue] = part.phase;
    }
    for (const Direct& direct : phase.directs)
      for (Queue* queue : direct.queues) last_phase_[queue] = direct.phase;
  }

  // The leader waits for the last graph of each other queue, and for the direct tasks that no later
  // work of their queues follows.
  void add_ends() {
    for (const auto& [queue, part] : last_part_)
      if (queue != &graphs_.leader_) graphs_.ends_.push_back(end_of(*part));
    for (const Phase& phase : graphs_.phases_) {
      for (const Direct& direct : phase.directs) {
        const bool awaited = std::ranges::any_of(direct.queues, [&](Queue* queue) {
          return queue == &graphs_.leader_ || last_phase_[queue] > direct.phase;
        });
        if (!awaited) graphs_.ends_.push_back(direct.after->event());
      }
    }
  }

  GpuGraphs& graphs_;
  Capture& capture_;
  std::vector<Place> places_;  // of the captured tasks
  std::map<const void*, Wanted> wanted_;
  std::map<Queue*, SubGraph*> last_part_;
  std::map<Queue*, std::int32_t> last_phase_;  // of each queue with work; -1: none yet
};

GpuGraphs::GpuGraphs(CudaBackend& backend, Capture& capture, Queue& leader)
    : backend_(backend), leader_(leader), queues_{&leader} {
  try {
    make_graphs(capture);
    Connector(*this, capture).run();
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
