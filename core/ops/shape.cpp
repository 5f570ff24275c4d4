// The primitives that change the shape or order of elements.
#include "core/ops/shape_params.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/ir/node.h"
#include "core/ops/batch_rules.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"
#include "core/ops/shape_rules.h"

namespace shmap {

namespace {

ShapedArray like(const ShapedArray& t, const Shape& shape) {
  return ShapedArray(shape, t.dtype(), t.weak(), AxisSet());
}

std::string given(const char* what, const ShapedArray& t) {
  return std::string(what) + ": an operand of type " + to_string(t);
}

// ---- broadcast_in_dim

void eval_broadcast(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<BroadcastParams>(params);
  checked_bytes(p.shape, itemsize(in[0].dtype()));
  const auto text = [&] {
    return given("broadcast_in_dim", in[0]) + " to the shape " + to_string(p.shape);
  };
  if (p.dims.size() != in[0].dims().size()) {
    throw ValueError(text() + ": " + std::to_string(p.dims.size()) +
                     " broadcast_dimensions are given, and one is wanted for each of the " +
                     std::to_string(in[0].rank()) + " dims of the operand");
  }
  for (std::size_t d = 0; d < p.dims.size(); ++d) {
    if (p.dims[d] < 0 || p.dims[d] >= p.shape.rank() || (d && p.dims[d] <= p.dims[d - 1])) {
      throw ValueError(text() +
                       ": broadcast_dimensions must be ascending dims of the result, and " +
                       std::to_string(p.dims[d]) + " for dim " + std::to_string(d) + " is not");
    }
    const std::int64_t to = p.shape[static_cast<std::size_t>(p.dims[d])];
    if (in[0].dims()[d] != to && in[0].dims()[d] != 1) {
      throw ValueError(text() + ": dim " + std::to_string(d) + " of extent " +
                       std::to_string(in[0].dims()[d]) + " goes to dim " +
                       std::to_string(p.dims[d]) + " of extent " + std::to_string(to) +
                       ": both must be equal, or the former 1");
    }
  }
  out[0] = like(in[0], p.shape);
}

// A view where no element is repeated, so that only dims of extent 1 are added.
std::int64_t view_broadcast(const ShapedArray& in, const Params&, const ShapedArray& out) {
  return in.size() == out.size() ? 0 : -1;
}

FactorRule shard_broadcast(Types in, const Params& params, Types out) {
  const auto& p = params_as<BroadcastParams>(params);
  FactorRule rule;
  rule.results.emplace_back();
  for (int d = 0; d < out[0].rank(); ++d) {
    rule.factors.push_back({out[0].dims()[static_cast<std::size_t>(d)], FactorKind::pass});
    rule.results[0].push_back({d});
  }
  rule.operands.emplace_back();
  for (std::size_t d = 0; d < p.dims.size(); ++d) {
    const std::int64_t to = p.dims[d];
    const bool same = in[0].dims()[d] == out[0].dims()[static_cast<std::size_t>(to)];
    rule.operands[0].push_back(same ? std::vector<int>{static_cast<int>(to)} : std::vector<int>());
  }
  rule.localize = [](const Params& global, Types, Types local) -> std::unique_ptr<Params> {
    auto mine = std::make_unique<BroadcastParams>(params_as<BroadcastParams>(global));
    mine->shape = local[0].dims();
    return mine;
  };
  return rule;
}

// ---- reshape

void eval_reshape(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<ReshapeParams>(params);
  if (p.new_sizes.num_elements() != in[0].size()) {
    throw ValueError(given("reshape", in[0]) + " has " + std::to_string(in[0].size()) +
                     " elements, and the shape " + to_string(p.new_sizes) + " has " +
                     std::to_string(p.new_sizes.num_elements()) +
                     ": a reshape keeps the number of elements");
  }
  out[0] = like(in[0], p.new_sizes);
}

// Walks the dims of both shapes from the major end, in groups of equal products. Within a group,
// common divisors of the remaining extents are factors; where there is none, the rest of the group
// is one factor that cannot be split.
FactorRule shard_reshape(Types in, const Params&, Types out) {
  const Shape &a = in[0].dims(), &b = out[0].dims();
  FactorRule rule;
  rule.operands.emplace_back(a.size());
  rule.results.emplace_back(b.size());
  rule.localize = [](const Params&, Types, Types local) -> std::unique_ptr<Params> {
    auto mine = std::make_unique<ReshapeParams>();
    mine->new_sizes = local[0].dims();
    return mine;
  };
  if (in[0].size() == 0) return rule;
  std::size_t i = 0, k = 0;
  std::int64_t rest_a = 1, rest_b = 1;  // the extents of dims i - 1 and k - 1 without the factors
                                        // found so far
  for (;;) {
    while (rest_a == 1 && i < a.size()) rest_a = a[i++];
    while (rest_b == 1 && k < b.size()) rest_b = b[k++];
    if (rest_a == 1 || rest_b == 1) break;
    const std::int64_t step = std::gcd(rest_a, rest_b);
    if (step != 1) {
      const int f = static_cast<int>(rule.factors.size());
      rule.factors.push_back({step, FactorKind::pass});
      rule.operands[0][i - 1].push_back(f);
      rule.results[0][k - 1].push_back(f);
      rest_a /= step;
      rest_b /= step;
      continue;
    }
    // No common divisor: joins dims until both products agree.
    std::int64_t product_a = rest_a, product_b = rest_b;
    const std::size_t first_a = i - 1, first_b = k - 1;
    while (product_a != product_b) {
      if (product_a < product_b) {
        product_a *= a[i++];
      } else {
        product_b *= b[k++];
      }
    }
    const int f = static_cast<int>(rule.factors.size());
    rule.factors.push_back({product_a, FactorKind::blocked});
    for (std::size_t d = first_a; d < i; ++d)
      if (a[d] != 1) rule.operands[0][d].push_back(f);
    for (std::size_t d = first_b; d < k; ++d)
      if (b[d] != 1) rule.results[0][d].push_back(f);
    rest_a = rest_b = 1;
  }
  return rule;
}

// ---- transpose

void eval_transpose(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<TransposeParams>(params);
  std::uint32_t seen = 0;
  Shape shape;
  for (std::int64_t d : p.permutation) {
    if (d < 0 || d >= in[0].rank() || (seen >> d & 1u)) break;
    seen |= 1u << d;
    shape.push_back(in[0].dims()[static_cast<std::size_t>(d)]);
  }
  if (shape.size() != p.permutation.size() || shape.rank() != in[0].rank()) {
    throw ValueError(given("transpose", in[0]) + " and the permutation " +
                     to_string(Shape(std::span(p.permutation.data(), p.permutation.size()))) +
                     ": every dim 0 … " + std::to_string(in[0].rank() - 1) +
                     " must come exactly once");
  }
  out[0] = like(in[0], shape);
}

// A view where the dims with more than one item keep their order.
std::int64_t view_transpose(const ShapedArray& in, const Params& params, const ShapedArray&) {
  std::int64_t last = -1;
  for (std::int64_t d : params_as<TransposeParams>(params).permutation) {
    if (in.dims()[static_cast<std::size_t>(d)] == 1) continue;
    if (d < last) return -1;
    last = d;
  }
  return 0;
}

FactorRule shard_transpose(Types in, const Params& params, Types) {
  FactorRule rule;
  rule.operands.emplace_back();
  rule.results.emplace_back();
  for (int d = 0; d < in[0].rank(); ++d) {
    rule.factors.push_back({in[0].dims()[static_cast<std::size_t>(d)], FactorKind::pass});
    rule.operands[0].push_back({d});
  }
  for (std::int64_t d : params_as<TransposeParams>(params).permutation)
    rule.results[0].push_back({static_cast<int>(d)});
  return rule;
}

// ---- rev

std::uint32_t mask_of(const IntList& dims) {
  std::uint32_t mask = 0;
  for (std::int64_t d : dims) mask |= 1u << d;
  return mask;
}

void eval_rev(Types in, const Params& params, std::span<ShapedArray> out) {
  for (std::int64_t d : params_as<RevParams>(params).dimensions) {
    if (d < 0 || d >= in[0].rank()) {
      throw ValueError(given("rev", in[0]) + " has no dim " + std::to_string(d));
    }
  }
  out[0] = like(in[0], in[0].dims());
}

FactorRule shard_rev(Types in, const Params& params, Types out) {
  return same_dims_rule(in, out, mask_of(params_as<RevParams>(params).dimensions));
}

// ---- concatenate

void eval_concatenate(Types in, const Params& params, std::span<ShapedArray> out) {
  const std::int64_t dim = params_as<ConcatenateParams>(params).dimension;
  if (in.empty()) throw ValueError("concatenate: no arrays are given, and one or more are wanted");
  if (dim < 0 || dim >= in[0].rank()) {
    throw ValueError(given("concatenate", in[0]) + " has no dim " + std::to_string(dim));
  }
  Shape shape = in[0].dims();
  const auto at = static_cast<std::size_t>(dim);
  bool weak = in[0].weak();
  for (std::size_t i = 1; i < in.size(); ++i) {
    Shape other = in[i].dims();
    if (in[i].dtype() != in[0].dtype()) {
      throw TypeError("concatenate: operands of dtypes " + to_string(in[0].dtype()) + " and " +
                      to_string(in[i].dtype()) + ": convert one with astype");
    }
    weak = weak && in[i].weak();
    if (other.size() == shape.size()) {
      shape[at] += other[at];
      other[at] = shape[at];
    }
    if (!(other == shape)) {
      throw ValueError("concatenate: operand 0 has type " + to_string(in[0]) + " and operand " +
                       std::to_string(i) + " has type " + to_string(in[i]) +
                       ": all extents except those of dim " + std::to_string(dim) +
                       ", along which they are joined, must be equal");
    }
  }
  checked_bytes(shape, itemsize(in[0].dtype()));
  out[0] = ShapedArray(shape, in[0].dtype(), weak, AxisSet());
}

FactorRule shard_concatenate(Types in, const Params& params, Types out) {
  return same_dims_rule(in, out, 1u << params_as<ConcatenateParams>(params).dimension);
}

// ---- pad

void eval_pad(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<PadParams>(params);
  const auto text = [&] { return given("pad", in[0]); };
  if (in[1].rank() != 0 || in[1].dtype() != in[0].dtype()) {
    throw TypeError(text() + " and a padding value of type " + to_string(in[1]) +
                    ": a scalar of the operand's dtype is wanted");
  }
  const std::size_t rank = in[0].dims().size();
  if (p.low.size() != rank || p.high.size() != rank || p.interior.size() != rank) {
    throw ValueError(text() + ": " + std::to_string(p.low.size()) +
                     " pairs of widths are given, and one is wanted for each dim");
  }
  Shape shape = in[0].dims();
  for (std::size_t d = 0; d < rank; ++d) {
    // In twice the width, so that a sum that does not fit is an error below and not an overflow.
    const __int128 between = shape[d] > 1 ? static_cast<__int128>(shape[d] - 1) * p.interior[d] : 0;
    const __int128 extent = shape[d] + between + p.low[d] + p.high[d];
    if (extent > std::numeric_limits<std::int64_t>::max()) {
      throw ValueError(text() + ": dim " + std::to_string(d) + " of the result passes 2^63 - 1");
    }
    shape[d] = extent < 0 ? -1 : static_cast<std::int64_t>(extent);
    if (p.interior[d] < 0 || shape[d] < 0) {
      throw ValueError(text() + ": widths " + std::to_string(p.low[d]) + ", " +
                       std::to_string(p.high[d]) + " and " + std::to_string(p.interior[d]) +
                       " between elements would make dim " + std::to_string(d) + " shorter than 0");
    }
  }
  checked_bytes(shape, itemsize(in[0].dtype()));
  out[0] = ShapedArray(shape, in[0].dtype(), in[0].weak() && in[1].weak(), AxisSet());
}

FactorRule shard_pad(Types in, const Params& params, Types out) {
  const auto& p = params_as<PadParams>(params);
  std::uint32_t padded = 0;
  for (std::size_t d = 0; d < p.low.size(); ++d)
    if (p.low[d] || p.high[d] || p.interior[d]) padded |= 1u << d;
  return same_dims_rule(in, out, padded);
}

// ---- iota

void eval_iota(Types, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<IotaParams>(params);
  if (!is_integer(p.dtype) && !is_floating(p.dtype)) {
    throw TypeError("iota: dtype " + to_string(p.dtype) + ": an integer or float type is wanted");
  }
  checked_bytes(p.shape, itemsize(p.dtype));
  if (p.dimension < 0 || p.dimension >= p.shape.rank()) {
    throw ValueError("iota: the shape " + to_string(p.shape) + " has no dim " +
                     std::to_string(p.dimension));
  }
  out[0] = ShapedArray(p.shape, p.dtype, false, AxisSet());
}

FactorRule shard_iota(Types in, const Params& params, Types out) {
  return same_dims_rule(in, out, 1u << params_as<IotaParams>(params).dimension,
                        [](const Params& global, Types, Types local) -> std::unique_ptr<Params> {
                          auto mine = std::make_unique<IotaParams>(params_as<IotaParams>(global));
                          mine->shape = local[0].dims();
                          return mine;
                        });
}

constexpr Primitive shape_primitive(const char* name, AbstractEvalFn eval, ShardingRuleFn sharding,
                                    TransposeFn transpose, ViewFn view = nullptr) {
  Primitive p;
  p.name = name;
  p.abstract_eval = eval;
  p.sharding = Rule<ShardingRuleFn>(sharding);
  p.jvp = Rule<JvpFn>(jvp_linear);
  p.transpose = Rule<TransposeFn>(transpose);
  p.view = view;
  return p;
}

}  // namespace

constinit Primitive broadcast_in_dim_p = shape_primitive(
    "broadcast_in_dim", eval_broadcast, shard_broadcast, transpose_broadcast, view_broadcast);
constinit Primitive reshape_p =
    shape_primitive("reshape", eval_reshape, shard_reshape, transpose_reshape, view_whole);
constinit Primitive transpose_p = shape_primitive("transpose", eval_transpose, shard_transpose,
                                                  transpose_transpose, view_transpose);
constinit Primitive rev_p = shape_primitive("rev", eval_rev, shard_rev, transpose_rev);
constinit Primitive concatenate_p =
    shape_primitive("concatenate", eval_concatenate, shard_concatenate, transpose_concatenate);
constinit Primitive pad_p = shape_primitive("pad", eval_pad, shard_pad, transpose_pad);
constinit Primitive iota_p = [] {
  Primitive p = shape_primitive("iota", eval_iota, shard_iota, nullptr);
  p.jvp = Rule<JvpFn>::none("it has no operand that could have a tangent");
  p.transpose = Rule<TransposeFn>::none("it has no operand that it could be linear in");
  return p;
}();

void register_shape() {
  broadcast_in_dim_p.batching = Rule<BatchFn>(batch_broadcast);
  reshape_p.batching = Rule<BatchFn>(batch_reshape);
  transpose_p.batching = Rule<BatchFn>(batch_transpose);
  rev_p.batching = Rule<BatchFn>(batch_rev);
  concatenate_p.batching = Rule<BatchFn>(batch_concatenate);
  pad_p.batching = Rule<BatchFn>(batch_pad);
  iota_p.batching = Rule<BatchFn>::none("it has no operands that could have a batch dim");
  for (Primitive* p :
       {&broadcast_in_dim_p, &reshape_p, &transpose_p, &rev_p, &concatenate_p, &pad_p, &iota_p})
    register_primitive(*p);
}

FactorRule same_dims_rule(Types in, Types out, std::uint32_t blocked,
                          FactorRule::Localize localize) {
  FactorRule rule;
  std::vector<std::vector<int>> dims;
  for (int d = 0; d < out[0].rank(); ++d) {
    dims.emplace_back();
    if (blocked >> d & 1u) continue;
    dims.back().push_back(static_cast<int>(rule.factors.size()));
    rule.factors.push_back({out[0].dims()[static_cast<std::size_t>(d)], FactorKind::pass});
  }
  for (const ShapedArray& t : in) {
    if (t.rank() == out[0].rank()) {
      rule.operands.push_back(dims);
    } else {
      rule.operands.emplace_back(static_cast<std::size_t>(t.rank()));
    }
  }
  rule.results.push_back(dims);
  rule.localize = localize;
  return rule;
}

}  // namespace shmap
