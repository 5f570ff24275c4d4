// Operations on sharded arrays outside of a body: the primitive's sharding rule says how each
// device works on its own blocks. Elementwise operations keep the sharding of the operand with the
// most parts. Without a rule, operands are gathered and the result is replicated. Eager calls and
// jit use the same rules.
#pragma once
#include <vector>

#include "core/array/sharding.h"
#include "core/ir/primitive.h"
#include "core/ir/trace.h"

namespace shmap {

// How one operation on global arrays runs on a mesh.
struct Partition {
  // The sharding to which each operand has to be brought; null for a literal.
  std::vector<const Sharding*> operands;
  std::vector<const Sharding*> results;
  // the parameters for one block; null: those of the global operation
  std::unique_ptr<Params> local_params;
  // The mesh axes over which the devices' results still have to be combined, by sum, max or min.
  std::vector<int> sum_axes, max_axes, min_axes;
};

// The reasons for a partition.
struct PartitionReasons {
  struct Factor {
    int factor;
    std::vector<int> axes;     // the mesh axes that split it
    std::size_t operand, dim;  // the operand's dim from which the split was adopted
  };
  enum class Why : std::uint8_t {
    blocked,  // the operation works along the whole dim
    // the dim is the minor part of a larger dim, in which a block would not be contiguous
    minor,
    decided,      // another operand had decided how the factor is split
    taken,        // another factor is split over the axes
    indivisible,  // the factor's extent is no multiple of the parts
  };
  struct Refused {  // an operand's split that could not stay
    std::size_t operand, dim;
    std::vector<int> axes;
    Why why;
  };
  FactorRule rule;  // without factors where the primitive has no rule
  std::vector<Factor> split;
  std::vector<Refused> refused;
};

// `given`: each operand's sharding over `mesh`; null where it has none over that mesh.
Partition partition(const Primitive& primitive, Types in, Types out, const Params& params,
                    const std::vector<const Sharding*>& given, const detail::MeshImpl* mesh,
                    PartitionReasons* reasons = nullptr);

// The shardings of operands for results of the shardings `wanted` (null: no requirement), by the
// factors that they share. Replicated where the primitive has no rule.
std::vector<const Sharding*> operands_for_results(const Primitive& primitive, Types in, Types out,
                                                  const Params& params,
                                                  const std::vector<const Sharding*>& wanted,
                                                  const detail::MeshImpl* mesh);

// Runs one operation by its partition: the primitive on the operands' blocks, which are values of
// `trace`, and the collectives that make its results whole. `trace` is a PerDeviceTrace for eager
// operations, a JaxprTrace for lowering. out: the results' blocks.
void run_partitioned(Trace& trace, const Primitive& primitive, const Partition& plan,
                     std::span<Array> blocks, const Params& params, std::span<Array> out,
                     SourceLine source);

}  // namespace shmap
