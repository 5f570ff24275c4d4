// Graph: a captured program of one backend, which can be launched many times.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/intrusive.h"
#include "core/device/event.h"

namespace shmap {

class Stream;

// A task of a graph, for inspection.
struct GraphTask {
  const char* name;
  std::vector<const Stream*> streams;  // one, or those given to Backend::enqueue_group
  std::vector<int> after;              // its direct predecessors, ascending
};

// A graph owns the args of its tasks, which are dropped with the graph. The memory that the tasks
// use belongs to the caller, who must keep it alive.
class Graph : public RefCounted {
 public:
  virtual ~Graph() = default;
  // The numbers of tasks and of dependencies between them; for tests and texts.
  virtual int nodes() const noexcept = 0;
  virtual int edges() const noexcept = 0;
  virtual std::int64_t cost_ns() const noexcept = 0;  // the sum over the nodes
  virtual std::vector<GraphTask> tasks() const = 0;   // in the order of capture
  // Enqueues one execution of the graph and returns its event. The tasks start after `waits`, and
  // after the pending tasks of the streams from which the graph was captured. Tasks that are
  // enqueued into these streams later start after the launch, so that launches of one graph never
  // overlap. Allocates no memory. The first error of a task fails the event, and the rest of the
  // launch is skipped; a failed event in `waits` has the same effect. Events in `after` are only
  // waited for: it does not matter whether they succeed. `ticket`: see TaskContext. The caller
  // holds the backend's submit mutex.
  virtual Event launch(std::span<const Event> waits = {}, std::span<const Event> after = {},
                       std::uint64_t ticket = 0) = 0;
};

}  // namespace shmap
