// Segment: a straight piece of a plan, which is captured into graphs.
//
// A graph is captured for the addresses of its inputs and leaves its results in one set of buffers;
// a segment therefore keeps several graphs. If the calls have more sets of addresses than that, as
// in a loop whose batches are always new, the segment stops capturing: inputs whose addresses
// change are copied to fixed addresses (a graph captured with these serves every call), or, if they
// are too large to copy, the steps run one by one.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/counters.h"
#include "core/device/graph.h"
#include "core/device/plan_memory.h"
#include "core/ir/jaxpr.h"
#include "core/runtime/donated_inputs.h"
#include "core/runtime/fixed_inputs.h"
#include "core/runtime/kernel.h"
#include "core/runtime/output_sets.h"

namespace shmap {

// One equation with its values numbered.
struct PlanStep {
  const Eqn* eqn;
  std::vector<int> in;     // slots; ~i for operand i where that is a literal
  std::uint32_t last = 0;  // bit i < 32: operand i's slot is mentioned here for the last time
  std::vector<int> out;    // slots; -1 where no step reads the result
  std::vector<ShapedArray> in_types, out_types;
  std::uint32_t varying = 0;  // the mesh axes over which the results vary

  // Whether operand i is given up; those after the first 32 never are.
  bool is_last(std::size_t i) const { return i < 32 && (last >> i & 1u); }
};

// "compute %2:f32[4] = sin %0!": values by slot; ! marks the last mention of a value.
std::string step_text(const PlanStep& step);

// How many graphs this process has captured. Exact; for tests.
std::int64_t graphs_captured() noexcept;

class Segment {
 public:
  // in, out: the slots that the segment reads, and the slots that are read after it; last_in: an
  // entry for each of `in`, true if the slot is not mentioned later.
  Segment(const detail::MeshImpl* mesh, std::vector<PlanStep> steps, std::vector<int> in,
          std::vector<int> out, std::vector<bool> last_in);

  // Runs on the values of a plan, indexed by slot: reads in(), drops the values that are mentioned
  // here for the last time, and fills out().
  void run(std::vector<Array>& values);

  const std::vector<PlanStep>& steps() const { return steps_; }
  // A description for people: the steps; for the latest graph each step's tasks, streams and the
  // steps whose events it waits for; and the memory, with the values that lie in it.
  std::string text() const;
  // Gives up the graphs whose results nobody holds, and their memory, which later calls make anew;
  // returns whether there were any. Does nothing while the segment captures or launches.
  bool give_up_memory() noexcept;

 private:
  // The location of a result's block after a launch.
  struct ResultBlock {
    enum Kind : std::uint8_t { output, input } kind;
    std::uint32_t index;     // of the output buffer, or of the input
    std::uint32_t position;  // of the input's table
    std::int64_t offset;     // in the buffer, or from the input's block
  };
  // The tasks that a step became in a graph; for text().
  struct StepTasks {
    int end = 0;  // its tasks are those from the previous step's `end` up to this one
    std::vector<std::vector<std::int64_t>> slots;  // of each result
  };
  struct Executable {
    std::vector<const void*> key;
    bool with_fixed = false;             // captured with fixed memory for some inputs
    std::shared_ptr<OutputSet> outputs;  // declared before the graph, so that it outlives the graph
    std::vector<BufferRef> slabs;        // and a buffer that owns the labels of the tasks
    Ref<Graph> graph;
    std::vector<std::vector<ResultBlock>> results;  // by result, by position
    std::vector<bool> donated;
    CounterDelta counted;
    std::uint64_t numbers = 0;  // how many of the mesh's collective numbers a launch takes
    std::uint64_t way = 0;      // of the devices that were active at the capture
    MemoryLayout layout;
    std::vector<StepTasks> steps;
    std::uint64_t last_used = 0;
  };
  using Executables = std::vector<std::unique_ptr<Executable>>;
  // Addresses for which no graph was captured, and how often they came.
  struct Missed {
    std::vector<const void*> key;
    int times = 0;
    std::uint64_t last = 0;
  };

  // `captured`: gets a record of each step.
  void run_steps(std::vector<Array>& values, std::vector<StepTasks>* captured = nullptr) const;
  void make_key(const std::vector<Array>& inputs, const std::vector<bool>& given);
  // Whether the current call has the input at the addresses of the graph's capture, and gave it up
  // as that call did.
  bool has_same_addresses(const Executable& e, std::size_t input) const;
  // Whether the current call may run the graph.
  bool serves(const Executable& e, const std::vector<Array>& inputs) const;
  Executable* find(const Executables& among, const std::vector<Array>& inputs) const;
  // For a call that no graph serves when there are already as many graphs as allowed: returns a
  // graph that serves the call, with or without fixed addresses, or null if the steps should run
  // one by one.
  Executable* find_or_make_with_fixed(const std::vector<Array>& inputs, std::vector<bool> given,
                                      std::size_t slots);
  bool pays_to_capture();
  // Gives fixed memory to more of the inputs; false where that would take too much memory.
  bool fix_inputs(const std::vector<Array>& inputs);
  void take_slabs(Executable& made);
  // Makes room among the output sets for one of another layout; false where none is free.
  bool drop_free_set() noexcept;
  void run_on_proxies(const std::vector<Array>& inputs, const std::vector<bool>& given,
                      std::vector<Array>& values, std::vector<StepTasks>* captured = nullptr) const;
  std::vector<std::vector<ResultBlock>> find_results(const std::vector<Array>& inputs,
                                                     const OutputSet& set,
                                                     const std::vector<Array>& values) const;
  static Executable* keep(Executables& into, std::unique_ptr<Executable> made);
  // Null where all output sets are in use. Throws OutOfMemory.
  Executable* capture(Executables& into, const std::vector<Array>& inputs,
                      const std::vector<bool>& given, std::size_t slots);
  void launch(Executable& executable, std::vector<Array>& inputs, std::vector<Array>& values);
  std::string graph_text(const Executable& executable) const;

  const detail::MeshImpl& mesh_;
  std::vector<PlanStep> steps_;
  std::vector<int> in_, out_;
  std::vector<ShapedArray> out_types_;
  std::vector<bool> last_in_;
  std::uint64_t runs_ = 0;
  OutputSets sets_;
  std::vector<BufferRef> slabs_;  // the largest slabs so far, for later graphs
  Executables executables_;
  Executables with_fixed_;  // the graphs captured with fixed memory
  FixedInputs fixed_;
  std::vector<Missed> missed_;
  bool warned_ = false;
  bool uses_graphs_ = false;             // captures, or launches
  std::uint64_t no_capture_before_ = 0;  // the run until which there was too little memory
  // State of the current call, in members only so that their memory is reused. key_: for each input
  // whether it was given up, and its addresses. inputs_: empty between calls. The last three: the
  // buffers of a launch. way_: of the active devices.
  std::vector<const void*> key_;
  std::uint64_t way_ = 0;
  std::vector<Array> inputs_;
  DonatedInputs donated_;
  std::vector<Buffer*> reads_, writes_, outputs_;
};

}  // namespace shmap
