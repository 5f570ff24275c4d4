// Sharding rules of the collectives, for bodies with automatic axes
// (core/compiler/lowering/automatic_axes.h): blocks may be split over these axes along every dim
// that the collective neither cuts nor makes.
#pragma once
#include "core/ir/sharding_rule.h"

namespace shmap {

FactorRule split_as_operand(
    std::span<const ShapedArray> in, const Params&,
    std::span<const ShapedArray> out);  // the result has the operand's shape
FactorRule split_gather(std::span<const ShapedArray> in, const Params&,
                        std::span<const ShapedArray> out);  // all_gather, all_gather_invariant
FactorRule split_scatter(std::span<const ShapedArray> in, const Params&,
                         std::span<const ShapedArray> out);  // psum_scatter, pscatter
FactorRule split_all_to_all(std::span<const ShapedArray> in, const Params&,
                            std::span<const ShapedArray> out);

}  // namespace shmap
