#include "cuda/device/small_fills.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "cuda/kernels/move/fill_node.h"

namespace shmap::cuda {
namespace {

// Toolkit 13 gives the forms with the edges' data the plain names.
#if CUDART_VERSION >= 13000
constexpr auto* kGetEdges = &cudaGraphGetEdges;
constexpr auto* kAddDependencies = &cudaGraphAddDependencies;
#else
constexpr auto* kGetEdges = &cudaGraphGetEdges_v2;
constexpr auto* kAddDependencies = &cudaGraphAddDependencies_v2;
#endif

// An error that is not of a lost GPU means that the node is left as it is.
bool succeeded(cudaError_t code) noexcept {
  if (code == cudaSuccess) return true;
  cudaGetLastError();
  note(code);
  return false;
}

bool is_small(const cudaMemsetParams& p) {
  return p.height == 1 && p.width > 0 && p.width <= kMostFillBytes / p.elementSize;
}

// The small memset nodes of a graph, with their neighbours.
class SmallFills {
 public:
  explicit SmallFills(cudaGraph_t graph) : graph_(graph) {
    std::size_t n = 0;
    if (!succeeded(cudaGraphGetNodes(graph_, nullptr, &n))) return;
    std::vector<cudaGraphNode_t> nodes(n);
    if (!succeeded(cudaGraphGetNodes(graph_, nodes.data(), &n))) return;
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
      if (!succeeded(cudaGraphNodeGetType(node, &type)) || type != cudaGraphNodeTypeMemset)
        continue;
      Fill fill;
      if (!succeeded(cudaGraphMemsetNodeGetParams(node, &fill.params)) || !is_small(fill.params))
        continue;
      order_.push_back(node);
      fills_.emplace(node, std::move(fill));
    }
  }

  void replace() {
    if (order_.empty() || !find_neighbours()) return;
    for (const cudaGraphNode_t node : order_) {
      if (fills_[node].plain) replace(node);
    }
  }

 private:
  struct Fill {
    cudaMemsetParams params = {};
    std::vector<cudaGraphNode_t> before, after;
    bool plain = true;  // whether each of its edges waits for a node's end
  };

  Fill* find(cudaGraphNode_t node) {
    const auto found = fills_.find(node);
    return found == fills_.end() ? nullptr : &found->second;
  }

  bool find_neighbours() {
    std::size_t n = 0;
    if (!succeeded(kGetEdges(graph_, nullptr, nullptr, nullptr, &n))) return false;
    std::vector<cudaGraphNode_t> from(n), to(n);
    std::vector<cudaGraphEdgeData> data(n);
    if (!succeeded(kGetEdges(graph_, from.data(), to.data(), data.data(), &n))) return false;
    for (std::size_t i = 0; i < n; ++i) {
      const bool plain = data[i].from_port == 0 && data[i].to_port == 0 && data[i].type == 0;
      if (Fill* const fill = find(from[i])) {
        fill->after.push_back(to[i]);
        fill->plain &= plain;
      }
      if (Fill* const fill = find(to[i])) {
        fill->before.push_back(from[i]);
        fill->plain &= plain;
      }
    }
    return true;
  }

  // The kernel is in the graph before the memset leaves it, so that no failure leaves a gap.
  void replace(cudaGraphNode_t memset) {
    const Fill& fill = fills_[memset];
    const GpuScope gpu(gpu_of(fill.params.dst));
    cudaGraphNode_t kernel = nullptr;
    if (!succeeded(add_fill_node(&kernel, graph_, fill.before, fill.params))) return;
    const std::vector<cudaGraphNode_t> from(fill.after.size(), kernel);
    if (!from.empty() && !succeeded(kAddDependencies(graph_, from.data(), fill.after.data(),
                                                     nullptr, from.size()))) {
      (void)succeeded(cudaGraphDestroyNode(kernel));
      return;
    }
    if (!succeeded(cudaGraphDestroyNode(memset))) return;
    for (const cudaGraphNode_t node : fill.before) {
      if (Fill* const other = find(node)) std::ranges::replace(other->after, memset, kernel);
    }
    for (const cudaGraphNode_t node : fill.after) {
      if (Fill* const other = find(node)) std::ranges::replace(other->before, memset, kernel);
    }
  }

  cudaGraph_t graph_;
  std::vector<cudaGraphNode_t> order_;
  std::unordered_map<cudaGraphNode_t, Fill> fills_;
};

}  // namespace

void replace_small_fills(cudaGraph_t graph) { SmallFills(graph).replace(); }

}  // namespace shmap::cuda
