// The sharding rule of a primitive, as factors: each dim of each operand and result is a factor or
// a product of factors (einsum's letters, generalised; Shardy's OpShardingRule). What is sharded is
// a factor; dims follow.
//
//   matmul    ij,jk->ik      j is summed
//   reshape   (ab)->a b      a dim of two factors can be split over the major one only
//   cumsum    ij->ij         the scanned factor is blocked: operands are gathered over it
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shmap/shaped_array.h"

namespace shmap {

class Params;

enum class FactorKind : std::uint8_t {
  pass,     // split in operands and results alike
  sum,      // absent from the result, which is a partial sum a device: psum makes it whole
  max,      // likewise with pmax
  min,      // likewise with pmin
  blocked,  // may not be split
};

struct Factor {
  std::int64_t size = 1;
  FactorKind kind = FactorKind::pass;
};

struct FactorRule {
  using Localize = std::unique_ptr<Params> (*)(const Params&, std::span<const ShapedArray> in,
                                               std::span<const ShapedArray> out);
  std::vector<Factor> factors;
  // [operand][dim] -> factors, major to minor. A dim of size 1 that is broadcast has none.
  std::vector<std::vector<std::vector<int>>> operands;
  std::vector<std::vector<std::vector<int>>> results;
  // Parameters for one device's blocks (given the blocks' types), where they hold extents; null:
  // the same as given.
  Localize localize = nullptr;
};

using ShardingRuleFn = FactorRule (*)(std::span<const ShapedArray> in, const Params&,
                                      std::span<const ShapedArray> out);

}  // namespace shmap
