// Graphs: instantiation, launches in a random topological order, updates, inspection.
#include <algorithm>

#include "capture.h"
#include "cuda_sim.h"
#include "runtime.h"

namespace shmap_sim {
namespace {

Graph* graph_of(Runtime& r, cudaGraph_t handle) {
  const auto found = r.graphs.find(handle);
  if (found != r.graphs.end()) return found->second.get();
  for (const auto& capture : r.captures) {  // also a graph that a capture is still writing
    if (static_cast<const void*>(capture->graph.get()) == static_cast<const void*>(handle)) {
      return capture->graph.get();
    }
  }
  return nullptr;
}

std::vector<std::vector<int>> successors(const Graph& graph) {
  std::vector<std::vector<int>> next(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const int from : graph.nodes[i].after) next[from].push_back(static_cast<int>(i));
  }
  return next;
}

std::shared_ptr<const Graph> copy(const Graph& graph) {
  auto result = std::make_shared<Graph>();
  for (const Node& node : graph.nodes) {
    Node made;
    made.work = node.work;
    made.after = node.after;
    result->nodes.push_back(std::move(made));
  }
  return result;
}

bool spans_gpus(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.work->device != graph.nodes.front().work->device;
  });
}

cudaError_t instantiate(Runtime& r, cudaGraphExec_t* handle, cudaGraph_t graph) {
  const Graph* g = graph_of(r, graph);
  if (handle == nullptr || g == nullptr) return cudaErrorInvalidValue;
  if (r.graphs_of_one_gpu && spans_gpus(*g)) return cudaErrorNotSupported;
  auto exec = std::make_shared<Exec>();
  exec->graph = copy(*g);
  exec->successors = successors(*g);
  *handle = reinterpret_cast<cudaGraphExec_t>(exec.get());
  r.execs.emplace(exec.get(), std::move(exec));
  return cudaSuccess;
}

cudaGraphExecUpdateResult compare(const Graph& a, const Graph& b, std::size_t& node) {
  node = b.nodes.size();
  if (a.nodes.size() != b.nodes.size()) return cudaGraphExecUpdateErrorTopologyChanged;
  for (node = 0; node < a.nodes.size(); ++node) {
    const Node& x = a.nodes[node];
    const Node& y = b.nodes[node];
    if (x.after != y.after) return cudaGraphExecUpdateErrorTopologyChanged;
    if (x.work->kind != y.work->kind) return cudaGraphExecUpdateErrorNodeTypeChanged;
    if (x.work->device != y.work->device) return cudaGraphExecUpdateErrorNotSupported;
  }
  return cudaGraphExecUpdateSuccess;
}

template <class Handle, class Table>
cudaError_t forget(Table& table, Handle handle) {
  return table.erase(handle) == 1 ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace
}  // namespace shmap_sim

using namespace shmap_sim;

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                 unsigned long long) {
  return api("cudaGraphInstantiate", 0,
             [&](Runtime& r, Lock&) { return instantiate(r, pGraphExec, graph); });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                          unsigned long long) {
  return api("cudaGraphInstantiateWithFlags", 0,
             [&](Runtime& r, Lock&) { return instantiate(r, pGraphExec, graph); });
}

// Under capture this would record a child graph, which the simulator does not support.
cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  return api("cudaGraphLaunch", 0, [&](Runtime& r, Lock& lock) {
    Stream* s = stream_of(r, stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    const auto found = r.execs.find(graphExec);
    if (found == r.execs.end()) return cudaErrorInvalidValue;
    if (s->capture != nullptr) {
      invalidate(*s->capture);
      return cudaErrorStreamCaptureUnsupported;
    }
    if (const cudaError_t error = check_implicit(r, *s); error != cudaSuccess) return error;
    Exec& exec = *found->second;
    auto run = std::make_shared<GraphRun>();
    run->graph = exec.graph;
    run->successors = exec.successors;
    for (std::size_t i = 0; i < exec.graph->nodes.size(); ++i) {
      run->blockers.push_back(static_cast<int>(exec.graph->nodes[i].after.size()));
      if (run->blockers.back() == 0) run->ready.push_back(static_cast<int>(i));
    }
    Work work;
    work.device = s->device;
    work.name = "graph";
    Ops waits;
    if (exec.last != nullptr && exec.last->state != Op::State::done) waits.push_back(exec.last);
    exec.last = push(r, *s, std::make_shared<const Work>(std::move(work)), std::move(waits));
    exec.last->graph = std::move(run);
    drain_if_full(r, lock);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
  return api("cudaGraphUpload", 0, [&](Runtime& r, Lock&) {
    if (r.execs.count(graphExec) == 0) return cudaErrorInvalidValue;
    const Stream* s = stream_of(r, stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    return s->capture == nullptr ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  return api("cudaGraphExecDestroy", kEvenIfLost,
             [&](Runtime& r, Lock&) { return forget(r.execs, graphExec); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", kEvenIfLost,
             [&](Runtime& r, Lock&) { return forget(r.graphs, graph); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* numNodes) {
  return api("cudaGraphGetNodes", 0, [&](Runtime& r, Lock&) {
    const Graph* g = graph_of(r, graph);
    if (g == nullptr || numNodes == nullptr) return cudaErrorInvalidValue;
    if (nodes != nullptr) {
      for (std::size_t i = 0; i < *numNodes; ++i) {
        nodes[i] = i < g->nodes.size() ? g->nodes[i].handle.get() : nullptr;
      }
      *numNodes = std::min(*numNodes, g->nodes.size());
    } else {
      *numNodes = g->nodes.size();
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* pRootNodes,
                                  size_t* pNumRootNodes) {
  return api("cudaGraphGetRootNodes", 0, [&](Runtime& r, Lock&) {
    const Graph* g = graph_of(r, graph);
    if (g == nullptr || pNumRootNodes == nullptr) return cudaErrorInvalidValue;
    std::size_t count = 0;
    for (const Node& node : g->nodes) {
      if (!node.after.empty()) continue;
      if (pRootNodes != nullptr && count < *pNumRootNodes) pRootNodes[count] = node.handle.get();
      ++count;
    }
    *pNumRootNodes = pRootNodes == nullptr ? count : std::min(*pNumRootNodes, count);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              size_t* numEdges) {
  return api("cudaGraphGetEdges", 0, [&](Runtime& r, Lock&) {
    const Graph* g = graph_of(r, graph);
    if (g == nullptr || numEdges == nullptr || (from == nullptr) != (to == nullptr)) {
      return cudaErrorInvalidValue;
    }
    std::size_t count = 0;
    for (const Node& node : g->nodes) {
      for (const int before : node.after) {
        if (from != nullptr && count < *numEdges) {
          from[count] = g->nodes[before].handle.get();
          to[count] = node.handle.get();
        }
        ++count;
      }
    }
    *numEdges = from == nullptr ? count : std::min(*numEdges, count);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* edgeData, size_t* numEdges) {
  const cudaError_t error = cudaGraphGetEdges(graph, from, to, numEdges);
  if (error == cudaSuccess && edgeData != nullptr && from != nullptr) {
    for (std::size_t i = 0; i < *numEdges; ++i) edgeData[i] = {};
  }
  return error;
}

cudaError_t cudaGraphGetEdges_v2(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                                 cudaGraphEdgeData* edgeData, size_t* numEdges) {
  return cudaGraphGetEdges(graph, from, to, edgeData, numEdges);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType* pType) {
  return api("cudaGraphNodeGetType", 0, [&](Runtime&, Lock&) {
    if (node == nullptr || pType == nullptr) return cudaErrorInvalidValue;
    switch (node->graph->nodes[node->index].work->kind) {
      case Work::Kind::kernel:
      case Work::Kind::custom:
        *pType = cudaGraphNodeTypeKernel;
        break;
      case Work::Kind::memcpy:
        *pType = cudaGraphNodeTypeMemcpy;
        break;
      case Work::Kind::memset:
        *pType = cudaGraphNodeTypeMemset;
        break;
      case Work::Kind::host:
        *pType = cudaGraphNodeTypeHost;
        break;
      case Work::Kind::event:
        *pType = cudaGraphNodeTypeEventRecord;
        break;
      case Work::Kind::marker:
        *pType = cudaGraphNodeTypeEmpty;
        break;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node,
                                         struct cudaMemsetParams* pNodeParams) {
  return api("cudaGraphMemsetNodeGetParams", 0, [&](Runtime&, Lock&) {
    if (node == nullptr || pNodeParams == nullptr) return cudaErrorInvalidValue;
    const Work& work = *node->graph->nodes[node->index].work;
    if (work.kind != Work::Kind::memset) return cudaErrorInvalidValue;
    *pNodeParams = work.fill;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const struct cudaKernelNodeParams* pNodeParams) {
  return api("cudaGraphAddKernelNode", 0, [&](Runtime& r, Lock&) {
    Graph* g = graph_of(r, graph);
    if (pGraphNode == nullptr || g == nullptr || pNodeParams == nullptr ||
        pNodeParams->extra != nullptr) {
      return cudaErrorInvalidValue;
    }
    std::vector<int> after;
    for (std::size_t i = 0; i < numDependencies; ++i) {
      if (pDependencies[i]->graph != g) return cudaErrorInvalidValue;
      after.push_back(pDependencies[i]->index);
    }
    const cudaLaunchConfig_t config{pNodeParams->gridDim,
                                    pNodeParams->blockDim,
                                    pNodeParams->sharedMemBytes,
                                    nullptr,
                                    nullptr,
                                    0};
    Work work;
    if (const cudaError_t error = make_kernel(r, config, this_thread.device, pNodeParams->func,
                                              nullptr, pNodeParams->kernelParams, nullptr, work);
        error != cudaSuccess) {
      return error;
    }
    *pGraphNode = g->nodes[add_node(*g, std::move(work), std::move(after))].handle.get();
    return cudaSuccess;
  });
}

// The nodes stay in the order in which they were added: the caller must not make a cycle.
cudaError_t cudaGraphAddDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t* from,
                                        const cudaGraphNode_t* to,
                                        const cudaGraphEdgeData* edgeData, size_t numDependencies) {
  return api("cudaGraphAddDependencies", 0, [&](Runtime& r, Lock&) {
    Graph* g = graph_of(r, graph);
    if (g == nullptr || edgeData != nullptr) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < numDependencies; ++i) {
      if (from[i]->graph != g || to[i]->graph != g) return cudaErrorInvalidValue;
      std::vector<int>& after = g->nodes[to[i]->index].after;
      const auto at = std::lower_bound(after.begin(), after.end(), from[i]->index);
      if (at != after.end() && *at == from[i]->index) return cudaErrorInvalidValue;  // it exists
      after.insert(at, from[i]->index);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return api("cudaGraphDestroyNode", 0, [&](Runtime&, Lock&) {
    if (node == nullptr) return cudaErrorInvalidValue;
    std::vector<Node>& nodes = node->graph->nodes;
    const int gone = node->index;
    nodes.erase(nodes.begin() + gone);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      nodes[i].handle->index = static_cast<int>(i);
      std::erase(nodes[i].after, gone);
      for (int& before : nodes[i].after) before -= before > gone ? 1 : 0;
    }
    return cudaSuccess;
  });
}

// Pending launches keep the old parameters.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                cudaGraphExecUpdateResultInfo* resultInfo) {
  return api("cudaGraphExecUpdate", 0, [&](Runtime& r, Lock&) {
    const auto found = r.execs.find(hGraphExec);
    const Graph* g = graph_of(r, hGraph);
    if (found == r.execs.end() || g == nullptr || resultInfo == nullptr) {
      return cudaErrorInvalidValue;
    }
    std::size_t node = 0;
    *resultInfo = {};
    resultInfo->result = compare(*found->second->graph, *g, node);
    if (resultInfo->result != cudaGraphExecUpdateSuccess) {
      if (node < g->nodes.size()) resultInfo->errorNode = g->nodes[node].handle.get();
      return cudaErrorGraphExecUpdateFailure;
    }
    found->second->graph = copy(*g);
    return cudaSuccess;
  });
}
