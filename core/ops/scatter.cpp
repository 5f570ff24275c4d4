#include "core/ops/scatter.h"

#include <algorithm>

#include "core/base/contains.h"
#include "core/base/counted.h"
#include "core/ops/batch_rules.h"

namespace shmap {

namespace {

// Whether dim d of the operand is a dim of the windows.
bool is_window(const ScatterAddParams& p, std::size_t d) {
  return !contains(p.inserted_window_dims, static_cast<std::int64_t>(d)) &&
         !contains(p.operand_batching_dims, static_cast<std::int64_t>(d));
}

constexpr const char* kNames[] = {"scatter", "scatter_add", "scatter_mul", "scatter_min",
                                  "scatter_max"};

template <ScatterKind kind>
void eval_scatter(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<ScatterAddParams>(params);
  const ShapedArray &operand = in[0], &indices = in[1], &updates = in[2];
  const auto text = [&] {
    return std::string(kNames[static_cast<int>(kind)]) + ": into an operand of type " +
           to_string(operand) + " at indices of type " + to_string(indices) +
           " with updates of type " + to_string(updates) + ": ";
  };
  const auto fail = [&](const std::string& why) { throw ValueError(text() + why); };
  const auto number = [](DType t) { return is_floating(t) || is_integer(t); };
  if (operand.dtype() != updates.dtype())
    throw TypeError(text() + "one dtype is wanted: convert the updates with astype");
  if (kind != ScatterKind::set && !number(operand.dtype()))
    throw TypeError(text() + "numbers are wanted: convert both with astype");
  if (!is_integer(indices.dtype())) throw TypeError(text() + "the indices have to be integers");
  if (indices.rank() < 1) fail("the indices have no last dim, which holds the index vectors");
  const int rank = operand.rank();
  if (static_cast<std::int64_t>(p.scatter_dims_to_operand_dims.size()) != indices.dims().back())
    fail("scatter_dims_to_operand_dims has " +
         counted(p.scatter_dims_to_operand_dims.size(), "dim") + ", and the index vectors have " +
         counted(indices.dims().back(), "entry", "entries"));
  if (!distinct_dims(p.scatter_dims_to_operand_dims, rank))
    fail("scatter_dims_to_operand_dims must name dims of the operand, each once");
  if (!ascending_dims(p.inserted_window_dims, rank) ||
      !ascending_dims(p.operand_batching_dims, rank))
    fail("inserted_window_dims and batching dims must be ascending dims of the operand");
  std::size_t window = 0, batch = 0;
  for (std::size_t d = 0; d < operand.dims().size(); ++d)
    if (is_window(p, d)) ++window;
  if (p.update_window_dims.size() != window ||
      !ascending_dims(p.update_window_dims, updates.rank()))
    fail(
        "update_window_dims must name, ascending, a dim of the updates for each dim of a window "
        "that is not inserted: " +
        std::to_string(window));
  if (updates.dims().size() != window + indices.dims().size() - 1)
    fail("the updates must have the dims of a window and those of the indices but the last");
  window = 0;
  for (std::size_t d = 0; d < updates.dims().size(); ++d) {
    if (contains(p.update_window_dims, static_cast<std::int64_t>(d))) {
      while (!is_window(p, window)) ++window;
      if (updates.dims()[d] > operand.dims()[window])
        fail("dim " + std::to_string(d) + " of the updates does not lie inside dim " +
             std::to_string(window) + " of the operand");
      ++window;
    } else if (updates.dims()[d] != indices.dims()[batch++]) {
      fail("dim " + std::to_string(d) + " of the updates must have the extent of dim " +
           std::to_string(batch - 1) + " of the indices");
    }
  }
  out[0] = ShapedArray(operand.dims(), operand.dtype(), operand.weak(), AxisSet());
}

Cost cost_scatter_add(Types in, const Params&, Types out) {
  return {static_cast<double>(in[2].size()), 2.0 * static_cast<double>(out[0].nbytes()) +
                                                 2.0 * static_cast<double>(in[2].nbytes()) +
                                                 static_cast<double>(in[1].nbytes())};
}
double scatter_add_flops(Types in, const Params&, Types) {
  return static_cast<double>(in[2].size());
}

// A dim of the operand that windows take whole, and that has no index, is split as in the updates.
// All other dims stay whole, because each device must see all windows of its part.
FactorRule shard_scatter_add(Types in, const Params& params, Types) {
  const auto& p = params_as<ScatterAddParams>(params);
  FactorRule rule;
  for (const ShapedArray& t : in) rule.operands.emplace_back(t.dims().size());
  rule.results.emplace_back(in[0].dims().size());
  std::size_t window = 0;
  for (std::size_t k = 0; k < p.update_window_dims.size(); ++k, ++window) {
    while (!is_window(p, window)) ++window;
    const auto u = static_cast<std::size_t>(p.update_window_dims[k]);
    if (in[2].dims()[u] != in[0].dims()[window] ||
        contains(p.scatter_dims_to_operand_dims, static_cast<std::int64_t>(window)))
      continue;
    const int f = static_cast<int>(rule.factors.size());
    rule.factors.push_back({in[0].dims()[window], FactorKind::pass});
    rule.operands[0][window].push_back(f);
    rule.operands[2][u].push_back(f);
    rule.results[0][window].push_back(f);
  }
  return rule;
}

template <ScatterKind kind>
constexpr Primitive make() {
  Primitive p;
  p.name = kNames[static_cast<int>(kind)];
  p.abstract_eval = eval_scatter<kind>;
  p.cost = cost_scatter_add;
  p.flops = scatter_add_flops;
  p.sharding = Rule<ShardingRuleFn>(shard_scatter_add);
  p.batching = Rule<BatchFn>(batch_scatter_add);
  p.in_place = true;
  p.in_place_operand = 0;
  return p;
}

}  // namespace

namespace {
constexpr const char* kScatterIsNotLinear = "it is not linear: its JVP rule is written with others";
}

constinit Primitive scatter_p = [] {
  Primitive p = make<ScatterKind::set>();
  p.jvp = Rule<JvpFn>(jvp_scatter_linear);
  p.transpose = Rule<TransposeFn>(transpose_scatter_set);
  return p;
}();
constinit Primitive scatter_add_p = [] {
  Primitive p = make<ScatterKind::add>();
  p.jvp = Rule<JvpFn>(jvp_scatter_linear);
  p.transpose = Rule<TransposeFn>(transpose_scatter_add);
  return p;
}();
constinit Primitive scatter_mul_p = [] {
  Primitive p = make<ScatterKind::mul>();
  p.jvp = Rule<JvpFn>(jvp_scatter_mul);
  p.transpose = Rule<TransposeFn>::none(kScatterIsNotLinear);
  return p;
}();
constinit Primitive scatter_min_p = [] {
  Primitive p = make<ScatterKind::min>();
  p.jvp = Rule<JvpFn>(jvp_scatter_extremum);
  p.transpose = Rule<TransposeFn>::none(kScatterIsNotLinear);
  return p;
}();
constinit Primitive scatter_max_p = [] {
  Primitive p = make<ScatterKind::max>();
  p.jvp = Rule<JvpFn>(jvp_scatter_extremum);
  p.transpose = Rule<TransposeFn>::none(kScatterIsNotLinear);
  return p;
}();

std::span<Primitive* const> scatter_primitives() {
#define SHMAP_ADDRESS(kind, primitive) &primitive,
  static constexpr Primitive* kAll[] = {SHMAP_SCATTERS(SHMAP_ADDRESS)};
#undef SHMAP_ADDRESS
  return kAll;
}

const Primitive& scatter_primitive(ScatterKind kind) {
  return *scatter_primitives()[static_cast<std::size_t>(kind)];
}

bool is_scatter(const Primitive& primitive) {
  const std::span<Primitive* const> all = scatter_primitives();
  return std::find(all.begin(), all.end(), &primitive) != all.end();
}

ScatterAddParams scatter_of(const GatherParams& gather) {
  ScatterAddParams p;
  p.update_window_dims = gather.offset_dims;
  p.inserted_window_dims = gather.collapsed_slice_dims;
  p.scatter_dims_to_operand_dims = gather.start_index_map;
  p.operand_batching_dims = gather.operand_batching_dims;
  p.scatter_indices_batching_dims = gather.start_indices_batching_dims;
  p.clip = gather.mode == GatherMode::clip;
  return p;
}

void register_scatter() {
  for (Primitive* p : scatter_primitives()) register_primitive(*p);
}

}  // namespace shmap
