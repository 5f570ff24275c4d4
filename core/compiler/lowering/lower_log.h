// An observer of a lowering's decisions, for explain_sharding and for argument_shardings.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/compiler/lowering/partition.h"
#include "core/ir/jaxpr.h"

namespace shmap {

struct LowerValue;

// `made`: the equations of blocks that were written for an equation or a move. Calls nest: those of
// a program inside of an equation come between begin_eqn and end_eqn of that equation. A program is
// lowered once for each combination of its arguments' shardings; the last lowering counts.
class LowerLog {
 public:
  virtual ~LowerLog() = default;
  // An argument or a constant of the whole program; constants have the first numbers. Called before
  // begin_program.
  virtual void argument(std::size_t /*index*/, const LowerValue&) {}
  virtual void begin_program(const Jaxpr&, std::span<const LowerValue> /*arguments*/) {}
  virtual void end_program(const Jaxpr&, std::span<const LowerValue> /*results*/) {}
  // A program inside of an equation that was lowered for these shardings before.
  virtual void known_program(const Jaxpr&, const std::vector<const Sharding*>& /*arguments*/) {}
  virtual void begin_eqn(const Eqn&, std::span<const LowerValue> /*in*/) {}
  virtual void planned(const Partition&, const PartitionReasons&) {}
  // x is brought to another sharding. `what` names x.
  virtual void moved(const LowerValue&, const Sharding* /*to*/, const std::string& /*what*/,
                     std::span<const Eqn> /*made*/) {}
  // A psum of which each device keeps only a part, so that it becomes a psum_scatter. `sum`: its
  // variable in the program of blocks. Called after the equations of that program.
  virtual void summed_in_parts(const Var& /*sum*/) {}
  virtual void end_eqn(const Eqn&, std::span<const LowerValue> /*out*/,
                       std::span<const Eqn> /*made*/) {}
};

}  // namespace shmap
