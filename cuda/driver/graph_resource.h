// Objects that a graph keeps alive, and how work that is captured hands them over.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/intrusive.h"

namespace shmap::cuda {

class Queue;

// An object that a graph keeps alive.
class GraphResource : public RefCounted {
 public:
  virtual ~GraphResource() = default;
  // Called when the graph was launched with that ticket, as the queue's task of that number.
  virtual void launched(std::uint64_t /*ticket*/, Queue& /*queue*/,
                        std::uint64_t /*number*/) noexcept {}
};

// The objects that the graph of an open capture will keep: the base class of Capture that the calls
// of kernels know. While a thread captures, detail::thread_state.capture points to it.
class CapturedResources {
 public:
  void keep(Ref<GraphResource> object) { kept_.push_back(std::move(object)); }
  std::vector<Ref<GraphResource>>& kept() noexcept { return kept_; }

 private:
  std::vector<Ref<GraphResource>> kept_;
};

// Keeps `object` alive as long as the graph that this thread captures. False where the thread
// captures no graph: the work that the caller enqueues then runs once.
bool keep_with_graph(Ref<GraphResource> object);

}  // namespace shmap::cuda
