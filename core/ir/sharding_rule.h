// The sharding rule of a primitive as factors (the letters of an einsum, generalised; Shardy's
// OpShardingRule): each dim of an operand or result is a factor or a product of factors. Mesh axes
// are assigned to factors, and a dim is split as its factors are.
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
  sum,      // not in the result: each device has a partial sum, and psum completes it
  max,      // likewise, with pmax
  min,      // likewise, with pmin
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
  // [operand][dim] -> its factors, major to minor. A dim of size 1 that is broadcast has no factor.
  std::vector<std::vector<std::vector<int>>> operands;
  std::vector<std::vector<std::vector<int>>> results;
  // The parameters for one device's blocks (in, out: the blocks' types), for parameters that
  // contain extents; null: the parameters are used unchanged.
  Localize localize = nullptr;
};

using ShardingRuleFn = FactorRule (*)(std::span<const ShapedArray> in, const Params&,
                                      std::span<const ShapedArray> out);

}  // namespace shmap
