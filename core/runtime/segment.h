// Segment: a straight piece of a plan, which is captured into graphs.
//
// A graph is of the addresses of its inputs, and leaves its results in one set of buffers; so a
// segment keeps a few. Calls with more sets of addresses than that, as of a loop whose batches are
// ever new, capture no more: what changes from call to call is copied to fixed places (a graph of
// those serves every call), or, where that is too much to copy, the steps run one by one.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/counters.h"
#include "core/device/graph.h"
#include "core/device/plan_memory.h"
#include "core/ir/jaxpr.h"
#include "core/runtime/fixed_places.h"
#include "core/runtime/kernel.h"

namespace shmap {

// One equation with its values numbered.
struct PlanStep {
  const Eqn* eqn;
  std::vector<int> in;     // slots; ~i for operand i where that is a literal
  std::uint32_t last = 0;  // bit i: operand i's slot is mentioned here for the last time
  std::vector<int> out;    // slots; -1 where nobody reads it
  std::vector<ShapedArray> in_types, out_types;
  std::uint32_t varying = 0;  // the mesh axes over which the results vary
};

// "compute %2:f32[4] = sin %0!": values by slot, each marked where it is mentioned last.
std::string step_text(const PlanStep& step);

// How many graphs this process has captured. Exact; for tests.
std::int64_t graphs_captured() noexcept;

class Segment {
 public:
  // in, out: the slots that it reads and that are read after it; last_in: which of `in` are
  // mentioned nowhere later.
  Segment(const detail::MeshImpl* mesh, std::vector<PlanStep> steps, std::vector<int> in,
          std::vector<int> out, std::vector<bool> last_in);

  // Runs on the values of a plan, by slot: reads in(), and lets those go that are mentioned last
  // here; fills out().
  void run(std::vector<Array>& values);

  const std::vector<PlanStep>& steps() const { return steps_; }
  // For looking at: the steps; of the latest graph each step's tasks, streams and the steps whose
  // events it waits for, and the memory, with the values that lie in it.
  std::string text() const;

 private:
  // Buffers that a graph leaves its results in. Free while nobody else owns any of them.
  struct OutputSet {
    std::vector<BufferRef> buffers;
    bool is_free() const;
  };
  // Where a block of a result is found after a launch.
  struct Place {
    enum Kind : std::uint8_t { output, input } kind;
    std::uint32_t index;     // of the output buffer, or of the input
    std::uint32_t position;  // of the input's table
    std::int64_t offset;     // in the buffer, or from the input's block
  };
  // What a step came to in a graph, for text().
  struct Captured {
    int end = 0;  // its tasks are those since the last step's, up to this one
    std::vector<std::vector<std::int64_t>> slots;  // of each result
  };
  struct Executable {
    std::vector<const void*> key;
    bool in_places = false;              // captured with inputs in places_
    std::shared_ptr<OutputSet> outputs;  // before the graph: it outlives that
    std::vector<BufferRef> slabs;        // and the labels of its tasks
    Ref<Graph> graph;
    std::vector<std::vector<Place>> results;  // by result, by position
    std::vector<bool> donated;
    CounterDelta counted;
    std::uint64_t numbers = 0;  // that a launch takes of the mesh's, for collectives
    MemoryLayout layout;
    std::vector<Captured> steps;
    std::uint64_t last_used = 0;
  };
  using Executables = std::vector<std::unique_ptr<Executable>>;
  // Addresses that no graph was of, and how often they came.
  struct Missed {
    std::vector<const void*> key;
    int times = 0;
    std::uint64_t last = 0;
  };

  // `captured`: gets a record of each step.
  void run_steps(std::vector<Array>& values, std::vector<Captured>* captured = nullptr) const;
  void find_donated(const std::vector<Array>& inputs, std::vector<bool>& given) const;
  void make_key(const std::vector<Array>& inputs, const std::vector<bool>& given);
  // True where the call at hand may run the graph.
  bool serves(const Executable& e, const std::vector<Array>& inputs) const;
  Executable* find(const Executables& among, const std::vector<Array>& inputs) const;
  // Of a call that none was found for while there are as many as may be: one that serves it, with
  // fixed places or not; null where its steps should run one by one.
  Executable* find_or_make_place(const std::vector<Array>& inputs, std::vector<bool> given,
                                 std::size_t slots);
  bool pays_to_capture();
  // Gives places to more of the inputs; false where that would take too much memory.
  bool add_places(const std::vector<Array>& inputs);
  bool all_sets_are_taken() const;
  void take_slabs(Executable& made);
  [[noreturn]] void rethrow_planned(const OutOfMemory& e) const;
  std::shared_ptr<OutputSet> free_set(const MemoryLayout& layout);
  // Null where all output sets are taken.
  Executable* capture(Executables& into, const std::vector<Array>& inputs,
                      const std::vector<bool>& given, std::size_t slots);
  void launch(Executable& executable, std::vector<Array>& inputs, std::vector<Array>& values);
  bool owned_by_sets(const Buffer* buffer) const;
  std::string graph_text(const Executable& executable) const;

  const detail::MeshImpl& mesh_;
  std::vector<PlanStep> steps_;
  std::vector<int> in_, out_;
  std::vector<ShapedArray> out_types_;
  std::vector<bool> last_in_;
  std::uint64_t runs_ = 0;
  std::vector<std::shared_ptr<OutputSet>> sets_;
  std::vector<BufferRef> slabs_;  // the largest so far, for graphs to come
  Executables executables_;
  Executables in_places_;  // those captured with inputs in places_
  FixedPlaces places_;
  std::vector<Missed> missed_;
  bool warned_ = false;
  // Of the call at hand, members for their memory alone: of each input a mark, and its addresses;
  // its inputs, empty between calls; which of them were given up; the buffers of a launch.
  std::vector<const void*> key_;
  std::vector<Array> inputs_;
  std::vector<bool> given_;
  std::vector<Buffer*> reads_, writes_, outputs_;
};

}  // namespace shmap
