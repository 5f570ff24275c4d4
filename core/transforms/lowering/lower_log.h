// What a lowering decides, told while it works: for explain_sharding, and for the choice of how
// arguments lie.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/ir/jaxpr.h"
#include "core/transforms/lowering/partition.h"

namespace shmap {

struct LowerValue;

// `made`: the equations of blocks that were written for it. Programs nest: the equations of one
// that an equation holds come between that equation's begin and end, once for each way in which its
// arguments turn out to be split; the last way is the one that stays.
class LowerLog {
 public:
  virtual ~LowerLog() = default;
  // An argument of the whole program, or a constant of it, which comes before.
  virtual void argument(std::size_t /*index*/, const LowerValue&) {}
  virtual void begin_program(const Jaxpr&, std::span<const LowerValue> /*arguments*/) {}
  virtual void end_program(const Jaxpr&, std::span<const LowerValue> /*results*/) {}
  // A program inside whose arguments are split as they were once before.
  virtual void known_program(const Jaxpr&, const std::vector<const Sharding*>& /*arguments*/) {}
  virtual void begin_eqn(const Eqn&, std::span<const LowerValue> /*in*/) {}
  virtual void planned(const Partition&, const PartitionReasons&) {}
  // A value that is brought to another sharding. `what` says which one it is.
  virtual void moved(const LowerValue&, const Sharding* /*to*/, const std::string& /*what*/,
                     std::span<const Eqn> /*made*/) {}
  // A sum over devices, by the variable of the program of blocks that holds it, of which each
  // device keeps a part alone, so that it is a psum_scatter. After the equations of its program.
  virtual void summed_in_parts(const Var& /*sum*/) {}
  virtual void end_eqn(const Eqn&, std::span<const LowerValue> /*out*/,
                       std::span<const Eqn> /*made*/) {}
};

}  // namespace shmap
