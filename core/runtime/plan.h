// Plan: a program of blocks, ready to be run many times by all local devices of a mesh.
//
// A plan is a list of parts: segments, and equations of control flow that the host decides. The
// first run of a segment runs step by step, through run_step and the collectives, as eager
// operations do. The second run captures the segment as a graph: its intermediate values lie in one
// slab per memory space, laid out by their lifetimes. Later runs launch the graph.
//
// Results stay valid after later runs: they lie in output sets, and a run takes an output set that
// no array holds. A graph is captured for the addresses of its arguments and for one output set,
// and the last few graphs are kept. A program that is called with arrays whose addresses recur
// allocates nothing and waits for nothing.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/device/idle_memory.h"
#include "core/ir/jaxpr.h"
#include "core/runtime/program_mark.h"
#include "core/runtime/segment.h"

namespace shmap {

// State of an equation that the host decides, kept from call to call.
class ControlState {
 public:
  virtual ~ControlState() = default;
  virtual std::string text() const = 0;  // the plans of the programs in the equation
};

class Plan final : IdleMemory {
 public:
  // Runs an equation whose parameters hold programs on blocks: interprets it, with the host
  // deciding, and keeps plans of these programs in `state`, which is null at the first call. An
  // equation that calls a function of the user runs without the plan's mutex, perhaps on several
  // threads at once.
  using RunControl = void (*)(const detail::MeshImpl& mesh, const Eqn& eqn, std::span<Array> in,
                              std::span<Array> out, std::unique_ptr<ControlState>& state);

  // consts: the values of the jaxpr's first binders, stored on `mesh` like the arguments. mark:
  // goes with the plan's collectives, so that processes with another program detect it.
  Plan(const detail::MeshImpl* mesh, JaxprRef jaxpr, std::vector<Array> consts,
       const ProgramMark& mark, RunControl run_control);
  ~Plan() override;

  // args: for each further binder a stored value on the mesh's local devices. An argument with no
  // other handle is donated: where its buffers have no other owner, results may use them. The
  // results are stored values without a sharding. Does not wait, except for the values by which the
  // host decides control flow. Any thread; runs of one plan exclude each other, except while they
  // call a function of the user (a primitive's def_impl), which may run the plan itself, or wait
  // for a thread that does.
  std::vector<Array> run(std::vector<Array> args);

  const Jaxpr& jaxpr() const { return *jaxpr_; }
  // The plan as text for people, segment by segment, with the plans inside of control flow.
  std::string text() const;

 private:
  // A segment, or an equation of control flow that the host decides.
  struct Stage {
    std::unique_ptr<Segment> segment;
    PlanStep control;
    std::unique_ptr<ControlState> state;
    bool calls_user = false;
  };
  class Running;
  void run_control(Stage& stage, std::vector<Array>& values) const;
  // Frees the memory of captured graphs, which a later call captures again. If the calling thread
  // is running this plan, frees only that of segments that do not use graphs in this run; if
  // another thread is, frees nothing.
  bool give_up() noexcept override;

  const detail::MeshImpl* mesh_;
  RunControl run_control_;
  JaxprRef jaxpr_;
  const ProgramMark mark_;
  std::vector<Stage> stages_;
  // Constants (closed-over arrays, and literals that are results) have slots that are filled before
  // any stage runs and live as long as the plan.
  std::vector<Array> constants_;
  std::vector<int> constant_slots_;
  std::vector<int> arg_slots_;  // -1 where nothing reads the argument
  std::vector<int> out_slots_;
  std::vector<bool> out_last_;  // whether no later result has the same slot
  std::size_t slot_count_ = 0;
  std::vector<Array> values_;  // of a run, by slot; empty between runs, a member for its memory
  mutable std::mutex mutex_;
  std::atomic<std::thread::id> runner_{};  // the thread that runs the plan, with the mutex held
};

}  // namespace shmap
