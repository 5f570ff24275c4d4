// Capture and graph: what streams record while they capture.
#pragma once
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "op.h"

namespace shmap_sim {
struct Graph;
}

struct CUgraphNode_st {
  shmap_sim::Graph* graph;
  int index;
};

namespace shmap_sim {

struct Node {
  std::shared_ptr<const Work> work;
  std::vector<int> after;  // ascending
  std::unique_ptr<CUgraphNode_st> handle;
};

struct Graph {
  std::vector<Node> nodes;
};

// The index of the new node. `after`: indices, in any order.
int add_node(Graph& graph, Work work, std::vector<int> after);

struct Capture {
  std::uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  Stream* origin = nullptr;
  std::vector<std::shared_ptr<Stream>> streams;  // the origin stream, and those that joined it
  std::shared_ptr<Graph> graph;
  bool invalid = false;
  bool ended = false;
};

// An instantiated graph. A launch keeps the plan with which it started.
struct Exec {
  std::shared_ptr<const Graph> graph;
  std::vector<std::vector<int>> successors;  // of each node
  std::shared_ptr<Op> last;                  // of the last launch; the next launch waits for it
};

// One launch that has not ended.
struct GraphRun {
  std::shared_ptr<const Graph> graph;
  std::vector<int> blockers;  // unfinished predecessors of each node
  std::vector<int> ready;
  std::vector<std::vector<int>> successors;  // as in Exec
};

}  // namespace shmap_sim
