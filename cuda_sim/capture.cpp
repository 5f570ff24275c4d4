// Stream capture.
#include "capture.h"

#include <algorithm>

#include "cuda_sim.h"
#include "runtime.h"

namespace shmap_sim {
namespace {

bool is_blocking(const Stream& stream) {
  return stream.legacy || (stream.flags & cudaStreamNonBlocking) == 0;
}

std::shared_ptr<Graph> end(Runtime& r, Capture& capture) {
  for (const auto& stream : capture.streams) {
    stream->capture.reset();
    stream->tails.clear();
  }
  capture.ended = true;
  capture.streams.clear();
  std::shared_ptr<Graph> graph = std::move(capture.graph);
  r.captures.erase(std::find_if(r.captures.begin(), r.captures.end(),
                                [&](const auto& c) { return c.get() == &capture; }));
  return graph;
}

// True if some work of the capture does not lead to the origin stream's last work.
bool unjoined(const Capture& capture) {
  std::vector<bool> followed(capture.graph->nodes.size(), false);
  for (const Node& node : capture.graph->nodes) {
    for (const int before : node.after) followed[before] = true;
  }
  for (const int tail : capture.origin->tails) followed[tail] = true;
  return std::find(followed.begin(), followed.end(), false) != followed.end();
}

}  // namespace

int add_node(Graph& graph, Work work, std::vector<int> after) {
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  const int index = static_cast<int>(graph.nodes.size());
  Node node;
  node.work = std::make_shared<const Work>(std::move(work));
  node.after = std::move(after);
  node.handle = std::make_unique<CUgraphNode_st>(CUgraphNode_st{&graph, index});
  graph.nodes.push_back(std::move(node));
  return index;
}

void invalidate(Capture& capture) { capture.invalid = true; }

cudaError_t check_unsafe(Runtime& r) {
  if (this_thread.mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const auto& capture : r.captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool forbids = own ? capture->mode != cudaStreamCaptureModeRelaxed
                             : capture->mode == cudaStreamCaptureModeGlobal &&
                                   this_thread.mode == cudaStreamCaptureModeGlobal;
    if (!forbids) continue;
    invalidate(*capture);
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t check_wide(Runtime& r, int device) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : r.captures) {
    for (const auto& stream : capture->streams) {
      if (device >= 0 && stream->device != device) continue;
      invalidate(*capture);
      error = cudaErrorStreamCaptureUnsupported;
    }
  }
  return error;
}

cudaError_t check_implicit(Runtime& r, Stream& stream) {
  if (!stream.legacy || r.captures.empty()) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const auto& capture : r.captures) {
    for (const auto& other : capture->streams) {
      if (other->device != stream.device || !is_blocking(*other)) continue;
      invalidate(*capture);
      error = cudaErrorStreamCaptureImplicit;
    }
  }
  return error;
}

cudaError_t submit(Runtime& r, Stream& stream, Work work, Ops waits) {
  if (stream.capture != nullptr) {
    if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
    const int node = add_node(*stream.capture->graph, std::move(work), stream.tails);
    stream.tails.assign(1, node);
    return cudaSuccess;
  }
  if (const cudaError_t error = check_implicit(r, stream); error != cudaSuccess) return error;
  push(r, stream, std::make_shared<const Work>(std::move(work)), std::move(waits));
  return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> work) {
  return enqueue_group({stream}, name, std::move(work));
}

cudaError_t enqueue_when(cudaStream_t handle, const char* name, std::function<bool()> may_run,
                         std::function<void()> work) {
  run_in_background();
  return api(name, 0, [&](Runtime& r, Lock& lock) {
    Stream* stream = stream_of(r, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    Work made;
    made.kind = Work::Kind::custom;
    made.device = stream->device;
    made.name = name;
    made.may_run = std::move(may_run);
    made.run = [work = std::move(work)] {
      work();
      return cudaSuccess;
    };
    const cudaError_t error = submit(r, *stream, std::move(made));
    drain_if_full(r, lock);
    return error;
  });
}

cudaError_t enqueue_group(const std::vector<cudaStream_t>& handles, const char* name,
                          std::function<void()> work) {
  return api(name, 0, [&](Runtime& r, Lock& lock) {
    std::vector<Stream*> streams;
    for (const cudaStream_t handle : handles) {
      Stream* stream = stream_of(r, handle);
      if (stream == nullptr) return cudaErrorInvalidResourceHandle;
      if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
        streams.push_back(stream);
      }
    }
    if (streams.empty()) return cudaErrorInvalidValue;
    Stream& first = *streams.front();
    Work made;
    made.kind = Work::Kind::custom;
    made.device = first.device;
    made.name = name;
    made.run = [work = std::move(work)] {
      work();
      return cudaSuccess;
    };
    if (first.capture != nullptr) {
      std::vector<int> after;
      for (const Stream* stream : streams) {
        if (stream->capture != first.capture) {
          invalidate(*first.capture);
          return cudaErrorStreamCaptureIsolation;
        }
        after.insert(after.end(), stream->tails.begin(), stream->tails.end());
      }
      if (first.capture->invalid) return cudaErrorStreamCaptureInvalidated;
      const int node = add_node(*first.capture->graph, std::move(made), std::move(after));
      for (Stream* stream : streams) stream->tails.assign(1, node);
      return cudaSuccess;
    }
    Ops arrivals;
    for (std::size_t i = 1; i < streams.size(); ++i) {
      if (streams[i]->capture != nullptr) {
        invalidate(*streams[i]->capture);
        return cudaErrorStreamCaptureIsolation;
      }
      Work marker;
      marker.device = streams[i]->device;
      marker.name = "arrive";
      arrivals.push_back(push(r, *streams[i], std::make_shared<const Work>(std::move(marker))));
    }
    if (const cudaError_t error = submit(r, first, std::move(made), std::move(arrivals));
        error != cudaSuccess) {
      return error;
    }
    const std::shared_ptr<Op> op = first.queue.back();
    for (std::size_t i = 1; i < streams.size(); ++i) {
      Work marker;
      marker.device = streams[i]->device;
      marker.name = "depart";
      push(r, *streams[i], std::make_shared<const Work>(std::move(marker)), {op});
    }
    drain_if_full(r, lock);
    return cudaSuccess;
  });
}

}  // namespace shmap_sim

using namespace shmap_sim;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", 0, [&](Runtime& r, Lock&) {
    Stream* s = stream_of(r, stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed) {
      return cudaErrorInvalidValue;
    }
    if (s->legacy) return cudaErrorStreamCaptureUnsupported;
    if (s->capture != nullptr) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->id = r.next_id++;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = s;
    capture->graph = std::make_shared<Graph>();
    capture->streams.push_back(s->shared_from_this());
    s->capture = capture;
    s->tails.clear();
    r.captures.push_back(std::move(capture));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  return api("cudaStreamEndCapture", kEvenIfLost, [&](Runtime& r, Lock&) {
    if (pGraph == nullptr) return cudaErrorInvalidValue;
    *pGraph = nullptr;
    Stream* s = stream_of(r, stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<Capture> capture = s->capture;
    if (capture == nullptr) return cudaErrorIllegalState;
    if (capture->origin != s) {
      invalidate(*capture);
      return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    const bool invalid = capture->invalid;
    const bool open = unjoined(*capture);
    const std::shared_ptr<Graph> graph = end(r, *capture);
    if (invalid) return cudaErrorStreamCaptureInvalidated;
    if (open) return cudaErrorStreamCaptureUnjoined;
    if (const cudaError_t lost = r.devices[this_thread.device]->lost; lost != cudaSuccess) {
      return lost;
    }
    *pGraph = reinterpret_cast<cudaGraph_t>(graph.get());
    r.graphs.emplace(graph.get(), graph);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus* pCaptureStatus) {
  return api("cudaStreamIsCapturing", 0, [&](Runtime& r, Lock&) {
    Stream* s = stream_of(r, stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (pCaptureStatus == nullptr) return cudaErrorInvalidValue;
    if (const cudaError_t error = check_implicit(r, *s); error != cudaSuccess) return error;
    *pCaptureStatus = s->capture == nullptr ? cudaStreamCaptureStatusNone
                      : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode) {
  return api("cudaThreadExchangeStreamCaptureMode", 0, [&](Runtime&, Lock&) {
    if (mode == nullptr) return cudaErrorInvalidValue;
    std::swap(*mode, this_thread.mode);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     enum cudaStreamCaptureStatus* captureStatus_out,
                                     unsigned long long* id_out, cudaGraph_t* graph_out,
                                     const cudaGraphNode_t** dependencies_out,
                                     size_t* numDependencies_out) {
  return api("cudaStreamGetCaptureInfo", 0, [&](Runtime& r, Lock&) {
    Stream* s = stream_of(r, stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (captureStatus_out == nullptr) return cudaErrorInvalidValue;
    *captureStatus_out = cudaStreamCaptureStatusNone;
    if (s->capture == nullptr) return cudaSuccess;
    *captureStatus_out =
        s->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    if (s->capture->invalid) return cudaSuccess;
    if (id_out != nullptr) *id_out = s->capture->id;
    if (graph_out != nullptr) {
      *graph_out = reinterpret_cast<cudaGraph_t>(s->capture->graph.get());
    }
    if (dependencies_out != nullptr) {
      static thread_local std::vector<cudaGraphNode_t> nodes;  // valid until this thread's next
                                                               // call
      nodes.clear();
      for (const int tail : s->tails) nodes.push_back(s->capture->graph->nodes[tail].handle.get());
      *dependencies_out = nodes.data();
    }
    if (numDependencies_out != nullptr) *numDependencies_out = s->tails.size();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     enum cudaStreamCaptureStatus* captureStatus_out,
                                     unsigned long long* id_out, cudaGraph_t* graph_out,
                                     const cudaGraphNode_t** dependencies_out,
                                     const cudaGraphEdgeData** edgeData_out,
                                     size_t* numDependencies_out) {
  if (edgeData_out != nullptr) *edgeData_out = nullptr;
  return cudaStreamGetCaptureInfo(stream, captureStatus_out, id_out, graph_out, dependencies_out,
                                  numDependencies_out);
}
