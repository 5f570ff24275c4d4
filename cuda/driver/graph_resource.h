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
  // That of this thread's open capture; null where the thread captures no graph.
  static CapturedResources* of_thread() noexcept;

  // See launches_dependently().
  bool allows_dependent_launches() const noexcept { return dependent_launches_; }
  void keep(Ref<GraphResource> object) { kept_.push_back(std::move(object)); }
  std::vector<Ref<GraphResource>>& kept() noexcept { return kept_; }

 protected:
  explicit CapturedResources(bool dependent_launches) noexcept
      : dependent_launches_(dependent_launches) {}

 private:
  const bool dependent_launches_;
  std::vector<Ref<GraphResource>> kept_;
};

// True where a kernel that this thread enqueues now may begin while the kernel before it still runs
// (cuda/kernels/embedded/dependent_launch.h): in a capture of work for one GPU, if
// SHMAP_DEPENDENT_LAUNCH is on. Edges between kernels of several GPUs, and eager launches, stay as
// usual.
bool launches_dependently() noexcept;

// Keeps `object` alive as long as the graph that this thread captures. False where the thread
// captures no graph: the work that the caller enqueues then runs once.
bool keep_with_graph(Ref<GraphResource> object);

}  // namespace shmap::cuda
