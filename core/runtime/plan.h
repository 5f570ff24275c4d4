// Plan: a program of blocks, ready to be run again and again by all local devices of a mesh.
//
// A plan is a list of segments. A straight one runs step by step the first time, through run_step
// and the collectives as eager ops do; from the second time on it is captured, in memory laid out
// by liveness in one slab a memory space, and the graph is launched. Control flow that the host has
// to decide stands between segments.
//
// Results survive later runs: they lie in output sets, and a run takes one that nobody holds. A
// graph is captured for the addresses of its arguments and its output set, and kept with a few
// others; so a program that is called with arrays which come round again allocates nothing and
// waits for nothing.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"
#include "core/runtime/segment.h"

namespace shmap {

// What running an equation that the host decides keeps from call to call.
class ControlState {
 public:
  virtual ~ControlState() = default;
  virtual std::string text() const = 0;  // the plans inside
};

class Plan {
 public:
  // consts: the values of the first binders, stored on `mesh` as the arguments are.
  Plan(const detail::MeshImpl* mesh, JaxprRef jaxpr, std::vector<Array> consts);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // args: a stored value of the mesh's local devices for each further binder. One whose handle here
  // is the only one is donated: where its buffers have no other owner, results may take them over.
  // Results are stored values without a sharding. Never waits, unless control flow has to be
  // decided. Any thread; runs of one plan take turns.
  std::vector<Array> run(std::vector<Array> args);

  const Jaxpr& jaxpr() const { return *jaxpr_; }
  // For looking at, segment by segment; plans inside of control flow too.
  std::string text() const;

 private:
  // A segment, or an equation that the host has to decide on.
  struct Part {
    std::unique_ptr<Segment> segment;
    PlanStep control;
    std::unique_ptr<ControlState> state;
  };
  void run_control(Part& part, std::vector<Array>& values) const;

  const detail::MeshImpl* mesh_;
  JaxprRef jaxpr_;
  std::vector<Part> parts_;
  // Before any part runs: constants (captured arrays, and literals that are results) have slots
  // that live as long as the plan.
  std::vector<Array> constants_;
  std::vector<int> constant_slots_;
  std::vector<int> arg_slots_;  // -1 where nobody reads it
  std::vector<int> out_slots_;
  std::size_t slot_count_ = 0;
  mutable std::mutex mutex_;
};

// How an equation with programs inside is run on blocks: by interpreting it, the host deciding,
// with plans of the programs inside, which it keeps in `state`. Set by the transforms'
// registration.
using RunControlFn = void (*)(const detail::MeshImpl& mesh, const Eqn& eqn, std::span<Array> in,
                              std::span<Array> out, std::unique_ptr<ControlState>& state);
void set_run_control(RunControlFn fn);

}  // namespace shmap
