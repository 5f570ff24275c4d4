// simulate: predicts how long a program would take on a machine that is described by its rates. The
// result is a timeline, computed with an alpha-beta model. The mesh can have any size, and can be
// abstract.
//
//   Schedule s = simulate(make_jaxpr(f)(types...),
//                         Topology{.levels = {{8, {3, 400000}}, {2048, {10, 45000}}},
//                                  .flops_per_us = 7e8, .memory_bytes_per_us = 4e6});
//   std::cout << s.us;
//   s.save("predicted.json");
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shmap/jaxpr.h"

namespace shmap {

// A link between devices: a message of n bytes takes latency_us + n / bytes_per_us.
struct Link {
  double latency_us;
  double bytes_per_us;
};

// A machine of equal devices. The devices form groups, and the groups of each level form the groups
// of the next level.
struct Topology {
  struct Level {
    int size;  // the number of devices, or of groups of the level below, in a group
    Link link;
  };
  // Innermost first: {{8, nvlink}, {32, network}} are 32 nodes of 8 devices. Devices of a mesh
  // stand in row-major order, so that the last mesh axis is the innermost.
  std::vector<Level> levels = {};
  // Rates of one device: arithmetic operations, and bytes read and written, per microsecond.
  double flops_per_us = 0, memory_bytes_per_us = 0;
};

namespace detail {
struct Timeline;
}

// The timeline of one device; all devices have the same.
struct Schedule {
  double us = 0;                         // from the begin to the end of the last operation
  double exposed_communication_us = 0;   // communicating while nothing is computed
  std::int64_t peak_bytes = 0;           // of one device: arguments, results, intermediate values
  std::vector<std::string> assumptions;  // a sentence for each thing that the program leaves open
  std::shared_ptr<const detail::Timeline> timeline;

  // Writes the timeline in Chrome's format, as profiler::Trace does: Perfetto and scripts/timeline
  // show it. Error where the file cannot be written, or there is no timeline.
  void save(const std::string& trace_path) const;
};

// The predicted timeline of one run of the program.
//
// A program of global arrays is split over its mesh first, as jit does it. Arguments of which only
// the types are known get the shardings that explain_sharding shows, so that nothing is moved
// before the program begins. The program is then simplified, fused and scheduled. Each device has
// one lane for computation and one lane for each level of links. An operation starts when its
// operands are ready and its lane is free; each lane runs its operations in program order.
//
//   compute      the longer of flops / flops_per_us and bytes / memory_bytes_per_us; views are free
//   collectives  ring or tree, whichever is shorter; over several levels, level by level
//
// Loops of known length count with all their trips, a while loop with one trip, a cond as the
// branch that takes longest. ValueError where a rate is not positive, where a level has no devices,
// where the machine has fewer devices than the mesh, where a mesh axis does not divide into the
// levels, and where the program is over several meshes.
Schedule simulate(const ClosedJaxpr& jaxpr, const Topology& topology);

}  // namespace shmap
