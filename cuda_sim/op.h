// Op: one piece of work in a stream, and the queues of such work.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driver_types.h"

namespace shmap_sim {

struct Stream;
struct GraphRun;
struct Event;

// The work itself, which is copied into each launch of a graph.
struct Work {
  enum class Kind { kernel, memcpy, memset, host, custom, marker, event };
  Kind kind = Kind::marker;
  int device = 0;
  std::string name;
  std::function<cudaError_t()> run;  // null: nothing to do; its error fails the device
  // Returns whether the work may start, for example because another process has to do its part
  // first; null: always. Called often, with the runtime's mutex held; must not call the simulator.
  std::function<bool()> may_run;
  const void* function = nullptr;  // of a kernel
  cudaMemsetParams fill = {};      // of a memset
  std::weak_ptr<Event> event;      // the event that a graph's node records
};

struct Op {
  enum class State { queued, running, done };
  State state = State::queued;
  std::shared_ptr<const Work> work;
  std::vector<std::shared_ptr<Op>> waits;  // besides the earlier work of its stream
  std::weak_ptr<Stream> stream;
  std::shared_ptr<GraphRun> graph;             // of a launch: the graph, which runs node by node
  std::chrono::steady_clock::time_point time;  // when the work ended
};

struct Capture;

struct Stream : std::enable_shared_from_this<Stream> {
  std::uint64_t id = 0;
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  bool active = false;  // whether the stream is in the list of streams with work
  std::deque<std::shared_ptr<Op>> queue;
  std::shared_ptr<Capture> capture;
  std::vector<int> tails;  // nodes of the capture that the next node depends on
};

struct Event {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<Op> op;            // of the last record; null: never recorded
  std::shared_ptr<Capture> capture;  // set if it was recorded in a capture
  std::vector<int> tails;
};

}  // namespace shmap_sim
