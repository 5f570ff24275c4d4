#include "collectives/sharding_rules.h"

#include "collectives/primitives.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

constexpr int kMade = -1;

// The dims of the operand, in order; those that a result has are those of the operand, moved.
std::vector<int> dims_of(const ShapedArray& type) {
  std::vector<int> dims;
  for (int d = 0; d < type.rank(); ++d) dims.push_back(d);
  return dims;
}

// source: for each dim of the result, the operand's dim that it is, or kMade. cut: the mask of the
// operand's dims that may not be split.
FactorRule moved_dims(const ShapedArray& in, const ShapedArray& out, const std::vector<int>& source,
                      std::uint32_t cut) {
  FactorRule rule;
  rule.operands.resize(1);
  rule.results.resize(1);
  const auto add = [&](std::int64_t size, FactorKind kind) {
    rule.factors.push_back({size, kind});
    return static_cast<int>(rule.factors.size()) - 1;
  };
  for (std::size_t d = 0; d < in.dims().size(); ++d) {
    const bool whole = (cut >> d & 1u) != 0;
    rule.operands[0].push_back({add(in.dims()[d], whole ? FactorKind::blocked : FactorKind::pass)});
  }
  for (std::size_t d = 0; d < out.dims().size(); ++d) {
    const bool moved = source[d] != kMade && !(cut >> source[d] & 1u);
    rule.results[0].push_back({moved ? rule.operands[0][static_cast<std::size_t>(source[d])][0]
                                     : add(out.dims()[d], FactorKind::blocked)});
  }
  return rule;
}

}  // namespace

FactorRule split_as_operand(Types in, const Params&, Types out) {
  return same_dims_rule(in, out, 0);
}

FactorRule split_gather(Types in, const Params& params, Types out) {
  const auto& p = params_as<AllGatherParams>(params);
  std::vector<int> source = dims_of(in[0]);
  if (p.tiled) return moved_dims(in[0], out[0], source, 1u << p.dimension);
  source.insert(source.begin() + p.dimension, kMade);
  return moved_dims(in[0], out[0], source, 0);
}

FactorRule split_scatter(Types in, const Params& params, Types out) {
  const auto& p = params_as<ScatterParams>(params);
  std::vector<int> source = dims_of(in[0]);
  if (!p.tiled) source.erase(source.begin() + p.dimension);
  return moved_dims(in[0], out[0], source, 1u << p.dimension);
}

FactorRule split_all_to_all(Types in, const Params& params, Types out) {
  const auto& p = params_as<AllToAllParams>(params);
  std::vector<int> source = dims_of(in[0]);
  if (p.tiled) return moved_dims(in[0], out[0], source, 1u << p.split_axis | 1u << p.concat_axis);
  source.erase(source.begin() + p.split_axis);
  source.insert(source.begin() + p.concat_axis, kMade);
  return moved_dims(in[0], out[0], source, 1u << p.split_axis);
}

}  // namespace shmap
