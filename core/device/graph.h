// Graph: a captured program of one backend, ready to be launched again and again.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/intrusive.h"
#include "core/device/event.h"

namespace shmap {

class Stream;

// One task of a graph, for looking at.
struct GraphTask {
  const char* name;
  std::vector<const Stream*> streams;  // that it is in: several where it is a group's
  std::vector<int> after;              // the tasks that it comes after directly, ascending
};

// Owns the args of its tasks: they are dropped with the graph. The caller keeps alive whatever the
// tasks address.
class Graph : public RefCounted {
 public:
  virtual ~Graph() = default;
  virtual int nodes() const noexcept = 0;
  virtual int edges() const noexcept = 0;
  virtual std::int64_t cost_ns() const noexcept = 0;  // summed over the nodes
  virtual std::vector<GraphTask> tasks() const = 0;   // in the order of capture
  // Starts after waits and after what is pending on the streams that it was captured from; what is
  // enqueued there later comes after it, so launches of one graph never overlap. Allocates nothing.
  // The first error of a task fails the event, and the rest of that launch is skipped; so does an
  // error of `waits`. What `after` has is waited for too, whether it succeeds or fails.
  // `ticket` is handed to the tasks of this launch (TaskContext). The caller holds the backend's
  // submit mutex.
  virtual Event launch(std::span<const Event> waits = {}, std::span<const Event> after = {},
                       std::uint64_t ticket = 0) = 0;
};

}  // namespace shmap
