// Ops on sharded arrays outside a body: the primitive's sharding rule says how each device works on
// its own blocks. Elementwise ops keep the most-sharded operand's sharding; others follow their
// rule; without one, operands are gathered and the result is replicated. (jit applies the same
// rules when it traces.)
#pragma once
#include <vector>

#include "core/array/sharding.h"
#include "core/ir/primitive.h"
#include "core/ir/trace.h"

namespace shmap {

// How one op on global arrays runs on a mesh.
struct Partition {
  std::vector<const Sharding*>
      operands;  // what each operand has to be brought to; null for a literal
  std::vector<const Sharding*> results;
  std::unique_ptr<Params> local_params;  // null: the same
  // Axes over which the results are partial, by the kind of what makes them whole.
  std::vector<int> sum_axes, max_axes, min_axes;
};

// Why a partition is as it is.
struct PartitionReasons {
  struct Factor {
    int factor;
    std::vector<int> axes;     // which split it
    std::size_t operand, dim;  // as this one was split
  };
  enum class Why : std::uint8_t {
    blocked,      // the operation works along the whole dim
    minor,        // the dim is the minor part of another one, where a block would not be contiguous
    decided,      // another operand had decided how the factor is split
    taken,        // another factor is split over the axes
    indivisible,  // the factor's extent is no multiple of the parts
  };
  struct Refused {  // an operand's split that could not stay
    std::size_t operand, dim;
    std::vector<int> axes;
    Why why;
  };
  FactorRule rule;  // without factors where the primitive has none
  std::vector<Factor> split;
  std::vector<Refused> refused;
};

// `given`: each operand's present sharding on `mesh`, null where it has none there.
Partition partition(const Primitive& primitive, Types in, Types out, const Params& params,
                    const std::vector<const Sharding*>& given, const detail::MeshImpl* mesh,
                    PartitionReasons* reasons = nullptr);

// How the operands would be split for results that are to be split so (null: that does not matter),
// by the factors that they share. Replicated where the primitive has no rule.
std::vector<const Sharding*> operands_for_results(const Primitive& primitive, Types in, Types out,
                                                  const Params& params,
                                                  const std::vector<const Sharding*>& wanted,
                                                  const detail::MeshImpl* mesh);

// Runs one op as a partition says: the primitive on the operands' blocks, which are values of
// `trace`, and the collectives that make its results whole. The same for an op that runs at once
// (a PerDeviceTrace) and for one that is lowered (a JaxprTrace). out: the results' blocks.
void run_partitioned(Trace& trace, const Primitive& primitive, const Partition& plan,
                     std::span<Array> blocks, const Params& params, std::span<Array> out,
                     SourceLine source);

}  // namespace shmap
