#include "core/ops/sort.h"

#include <cmath>
#include <limits>

#include "core/base/counted.h"
#include "core/ops/batch_rules.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/ops/sort_rules.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

// Kernels and indices count the elements of a line in 32 bits.
void check_line(const ShapedArray& in, std::int64_t dim, const char* what) {
  if (dim < 0 || dim >= in.rank()) {
    throw ValueError(std::string(what) + ": dim " + std::to_string(dim) +
                     " of an operand of type " + to_string(in) +
                     ": wanted a dim from 0 to the rank less 1");
  }
  const std::int64_t extent = in.dims()[static_cast<std::size_t>(dim)];
  if (extent > std::numeric_limits<std::int32_t>::max()) {
    throw ValueError(std::string(what) + ": dim " + std::to_string(dim) + " has " +
                     std::to_string(extent) +
                     " elements, and at most 2^31 - 1 can be put in order: work on parts of it");
  }
}

void eval_sort(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<SortParams>(params);
  if (p.num_keys < 1 || p.num_keys > static_cast<std::int64_t>(in.size())) {
    throw ValueError("sort: num_keys=" + std::to_string(p.num_keys) + " of " +
                     counted(in.size(), "operand") + ": wanted 1 to as many as there are");
  }
  check_line(in[0], p.dimension, "sort");
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!(in[i].dims() == in[0].dims())) {
      throw ValueError("sort: operands of shapes " + to_string(in[0].dims()) + " and " +
                       to_string(in[i].dims()) + ": what is sorted together has one shape");
    }
    if (in[i].dtype() == DType::prng_key) {
      throw TypeError("sort: an operand of type " + to_string(in[i]) +
                      ": keys have no order, and cannot be sorted along");
    }
    out[i] = in[i].with_axes(AxisSet());
  }
}

// The number of comparisons: about n log2 n for a line of n elements.
double line_flops(const ShapedArray& in, std::int64_t dim) {
  const auto len = static_cast<double>(in.dims()[static_cast<std::size_t>(dim)]);
  return len > 1 ? static_cast<double>(in.size()) * std::log2(len) : 0;
}
double sort_flops(Types in, const Params& params, Types) {
  return line_flops(in[0], params_as<SortParams>(params).dimension);
}
double top_k_flops(Types in, const Params& params, Types) {
  return line_flops(in[0], params_as<TopKParams>(params).axis);
}

int sort_results(Types in, const Params&) { return static_cast<int>(in.size()); }

Cost line_cost(const ShapedArray& in, std::int64_t dim) {
  const auto n = static_cast<double>(in.size());
  const auto len = static_cast<double>(in.dims()[static_cast<std::size_t>(dim)]);
  return {120 * n * std::log2(len + 2), 4 * n * itemsize(in.dtype())};
}
Cost sort_cost(Types in, const Params& params, Types) {
  return line_cost(in[0], params_as<SortParams>(params).dimension);
}

FactorRule line_sharding(Types in, std::int64_t dim, std::size_t results) {
  FactorRule rule;
  std::vector<std::vector<int>> dims;
  for (int d = 0; d < in[0].rank(); ++d) {
    rule.factors.push_back({in[0].dims()[static_cast<std::size_t>(d)],
                            d == dim ? FactorKind::blocked : FactorKind::pass});
    dims.push_back({d});
  }
  rule.operands.assign(in.size(), dims);
  rule.results.assign(results, dims);
  return rule;
}
FactorRule sort_sharding(Types in, const Params& params, Types out) {
  return line_sharding(in, params_as<SortParams>(params).dimension, out.size());
}

void eval_top_k(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<TopKParams>(params);
  check_line(in[0], p.axis, "top_k");
  if (in[0].dtype() == DType::prng_key) {
    throw TypeError("top_k: an operand of type " + to_string(in[0]) + ": keys have no order");
  }
  if (p.axis != in[0].rank() - 1) {
    throw ValueError("top_k: axis " + std::to_string(p.axis) + " of an operand of type " +
                     to_string(in[0]) + ": wanted the last dim; transpose first");
  }
  Shape shape = in[0].dims();
  if (p.k < 0 || p.k > shape.back()) {
    throw ValueError("top_k: k=" + std::to_string(p.k) + " of an operand of shape " +
                     to_string(shape) + ": wanted 0 to the last extent, " +
                     std::to_string(shape.back()));
  }
  shape[shape.size() - 1] = p.k;
  out[0] = ShapedArray(shape, in[0].dtype(), in[0].weak(), AxisSet());
  out[1] = ShapedArray(shape, DType::i32, false, AxisSet());
}

int two_results(Types, const Params&) { return 2; }

Cost top_k_cost(Types in, const Params& params, Types) {
  const auto n = static_cast<double>(in[0].size());
  const auto k = static_cast<double>(params_as<TopKParams>(params).k);
  return {300 * n + 120 * k * std::log2(k + 2), 3 * n * itemsize(in[0].dtype())};
}

FactorRule top_k_sharding(Types in, const Params& params, Types out) {
  const std::int64_t axis = params_as<TopKParams>(params).axis;
  FactorRule rule = line_sharding(in, axis, out.size());
  // The last dim of the results has extent k, and is a factor of its own.
  const int last = static_cast<int>(rule.factors.size());
  rule.factors.push_back({out[0].dims().back(), FactorKind::blocked});
  for (auto& dims : rule.results) dims.back() = {last};
  return rule;
}

}  // namespace

constinit Primitive sort_p = [] {
  Primitive p;
  p.name = "sort";
  p.abstract_eval = eval_sort;
  p.result_count = sort_results;
  p.cost = sort_cost;
  p.flops = sort_flops;
  p.sharding = Rule<ShardingRuleFn>(sort_sharding);
  p.jvp = jvp_sort;
  p.transpose = Rule<TransposeFn>::none("it is not linear: where elements go depends on them");
  p.batching = Rule<BatchFn>(batch_sort);
  return p;
}();
constinit Primitive top_k_p = [] {
  Primitive p;
  p.name = "top_k";
  p.abstract_eval = eval_top_k;
  p.result_count = two_results;
  p.cost = top_k_cost;
  p.flops = top_k_flops;
  p.sharding = Rule<ShardingRuleFn>(top_k_sharding);
  p.jvp = jvp_top_k;
  p.transpose = Rule<TransposeFn>::none("it is not linear: where elements go depends on them");
  p.batching = Rule<BatchFn>(batch_top_k);
  return p;
}();

void register_sort() {
  register_primitive(sort_p);
  register_primitive(top_k_p);
}

// ---- user functions

namespace {

int sorted_dim(const Operand& x, int axis, const char* what) {
  try {
    return normalize_dim(axis, type_of(x, what).rank(), what);
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(x.source));
  }
}

}  // namespace

Array sort(Operand x, int axis) {
  const SortParams params(sorted_dim(x, axis, "sort"));
  return bind(sort_p, std::move(x.value), params, x.source);
}

Array argsort(Operand x, int axis) {
  const FunctionScope scope("argsort", {&x.value}, x.source);
  const SortParams params(sorted_dim(x, axis, "argsort"));
  IotaParams positions;
  positions.dtype = DType::i32;
  positions.shape = type_of(x, "argsort").dims();
  positions.dimension = params.dimension;
  Array in[2] = {std::move(x.value), shmap::bind(iota_p, std::span<Array>(), positions, x.source)};
  return std::move(bind_all(sort_p, in, params, x.source)[1]);
}

std::pair<Array, Array> top_k(Operand x, std::int64_t k) {
  const TopKParams params(sorted_dim(x, -1, "top_k"), k);
  Array in[1] = {std::move(x.value)};
  std::vector<Array> out = bind_all(top_k_p, in, params, x.source);
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace shmap
