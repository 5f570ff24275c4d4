// Differentiating a mapped function: its body runs once, under the trace below, inside a JVP. Under
// linearize, the tangents' part of the body becomes a linear program of blocks, and a linear
// shard_map equation of that program takes the residuals and the tangents.
#include "core/compiler/lowering/automatic_axes.h"
#include "core/compiler/lowering/reshard_blocks.h"
#include "core/ops/shape_params.h"
#include "core/transforms/autodiff/derived.h"
#include "shard_map/mapped.h"
#include "shard_map/primitive.h"

namespace shmap {

namespace {

// Splits the results of a body into primals, which remain, and the tangents that are not zero.
std::vector<Array> take_tangents(const JvpTrace& trace, std::vector<Array>& results,
                                 std::vector<bool>& active) {
  std::vector<Array> tangents;
  for (Array& x : results) {
    auto [primal, tangent] = trace.split(x);
    active.push_back(tangent.node() != nullptr);
    if (tangent.node()) tangents.push_back(std::move(tangent));
    x = std::move(primal);
  }
  return tangents;
}

// The shardings of the results that have a tangent.
std::vector<const Sharding*> chosen(const std::vector<const Sharding*>& all,
                                    const std::vector<bool>& active) {
  std::vector<const Sharding*> some;
  for (std::size_t o = 0; o < all.size(); ++o)
    if (active[o]) some.push_back(all[o]);
  return some;
}

Duals side_by_side(MappedCall call, std::span<const Array> tangents, Trace& parent,
                   std::uint64_t tag) {
  const std::size_t n = call.in.size();
  const std::vector<bool> active_in = given_mask(tangents);
  std::vector<bool> active;
  MappedCall both = call;
  for (std::size_t i = 0; i < n; ++i) {
    if (!active_in[i]) continue;
    both.in.push_back(tangents[i]);
    both.in_shardings.push_back(call.in_shardings[i]);
  }
  both.body = [&](std::vector<Array> blocks) {
    JvpTrace trace(current_trace(), nullptr, tag);
    std::vector<Array> args;
    for (std::size_t i = 0, next = n; i < n; ++i)
      args.push_back(active_in[i] ? trace.dual(blocks[i], blocks[next++], "shard_map", call.source)
                                  : std::move(blocks[i]));
    blocks.clear();
    std::vector<Array> results;
    {
      TraceScope scope(trace);
      results = call.body(std::move(args));
    }
    for (Array& t : take_tangents(trace, results, active)) results.push_back(std::move(t));
    return results;
  };
  both.out_shardings = [&](std::span<const ShapedArray> types) {
    std::vector<const Sharding*> out = call.out_shardings(types.first(active.size()));
    for (const Sharding* s : chosen(out, active)) out.push_back(s);
    return out;
  };
  TraceScope scope(parent);
  std::vector<Array> results = map_over(both);
  Duals out;
  for (std::size_t o = 0, next = active.size(); o < active.size(); ++o) {
    out.primals.push_back(std::move(results[o]));
    out.tangents.push_back(active[o] ? std::move(results[next++]) : Array());
  }
  return out;
}

// A residual that leaves the body. A scalar that differs between devices leaves as a vector of one
// element, because blocks are concatenated along a dim.
bool goes_as_vector(const ShapedArray& type, const Sharding* sharding) {
  return type.rank() == 0 && !sharding->is_replicated();
}

// The program with a binder of shape [1] instead of the scalar `binder`.
void take_vector(Jaxpr& program, std::size_t binder) {
  const VarRef scalar = program.binders[binder];
  const ShapedArray& t = scalar->type;
  program.binders[binder] =
      make_ref<const Var>(ShapedArray(Shape({1}), t.dtype(), t.weak(), t.axes()));
  Eqn eqn{
      &reshape_p, {Atom(program.binders[binder])}, std::make_shared<ReshapeParams>(), {scalar}, {}};
  program.eqns.insert(program.eqns.begin(), std::move(eqn));
}

// What the linear program of blocks reads besides tangents: a result of the primal call, or a value
// from outside of the body.
struct Residual {
  Array outside;       // empty: result `result`
  std::size_t result;  // of the primal call
  const Sharding* sharding;
};

// What the primal call leaves for the equation of the tangents.
struct LinearPart {
  std::vector<bool> active;  // which results have a tangent
  std::vector<Residual> residuals;
  std::vector<const Sharding*> shardings;  // of the results
  Ref<Jaxpr> program;                      // from residuals and tangents of blocks to tangents
};

// Runs the body on the primals' blocks, under the current trace, and stages what it does to
// tangents as part.program. Results: those of the body, then the residuals that leave it. Sets all
// of `part` but the shardings.
std::vector<Array> stage_linear_part(const MappedCall& call, std::vector<Array> blocks,
                                     const std::vector<bool>& active_in, const JaxprTrace& linear,
                                     std::uint64_t tag, LinearPart& part) {
  Trace& here = current_trace();
  StagingOptions options;
  options.below = &here;
  options.outer = &linear;
  options.inline_scalars = false;
  options.check_variance = call.options.check_vma;
  options.auto_pbroadcast = call.options.auto_pbroadcast;
  JaxprTrace inner("linearize", env_of(*call.mesh, call.axes.manual()), options);
  JvpTrace trace(here, &inner, tag);
  std::vector<Array> args;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Array block = std::move(blocks[i]);
    args.push_back(active_in[i]
                       ? trace.dual(block,
                                    inner.argument(block_type(node_of(call.in[i])->type,
                                                              call.in_shardings[i], "an argument")),
                                    "shard_map", call.source)
                       : block);
  }
  std::vector<Array> results;
  {
    TraceScope scope(trace);
    results = call.body(std::move(args));
  }
  std::vector<Array> outs = take_tangents(trace, results, part.active);
  Traced traced = inner.build(outs, "the tangents of a shard_map body", call.source);
  part.program = make_ref<Jaxpr>(*traced.jaxpr);
  for (std::size_t k = 0; k < traced.consts.size(); ++k) {
    Array& x = traced.consts[k];
    const Node& node = *node_of(x);
    if (node.trace == 0 || linear.is_staged(x)) {
      part.residuals.push_back({x, 0, call.mesh->replicated()});
      continue;
    }
    part.residuals.push_back({Array(), results.size(), sharding_by_variance(call, node.type)});
    if (goes_as_vector(node.type, part.residuals.back().sharding)) {
      take_vector(*part.program, k);
      x = bind_reshape(x, Shape({1}), call.source);
    }
    results.push_back(std::move(x));
  }
  return results;
}

// Adds the equation of the tangents to `linear`, and returns the tangents of the results. Consumes
// the residuals.
std::vector<Array> bind_linear_equation(const MappedCall& call, LinearPart& part,
                                        std::span<const Array> tangents,
                                        const std::vector<bool>& active_in, JaxprTrace& linear) {
  ShardMapParams params;
  params.over = call.mesh;
  params.axes = call.axes;
  params.options = call.options;
  params.out = chosen(part.shardings, part.active);
  params.jaxpr = part.program;
  std::vector<Array> operands;
  for (Residual& r : part.residuals) {
    params.in.push_back(r.sharding);
    operands.push_back(std::move(r.outside));
  }
  for (std::size_t i = 0; i < tangents.size(); ++i) {
    if (!active_in[i]) continue;
    params.in.push_back(call.in_shardings[i]);
    operands.push_back(tangents[i]);
  }
  std::vector<Array> out(part.active.size());
  if (params.out.empty()) return out;
  check_pass(*part.program, "linearize");
  TraceScope scope(linear);
  std::vector<Array> derivatives = bind_all(shard_map_p, operands, params, call.source);
  for (std::size_t o = 0, next = 0; o < part.active.size(); ++o)
    if (part.active[o]) out[o] = std::move(derivatives[next++]);
  return out;
}

}  // namespace

Duals differentiate_mapped(MappedCall call, std::span<const Array> tangents, JaxprTrace* linear,
                           Trace& parent, std::uint64_t tag) {
  if (!linear) return side_by_side(std::move(call), tangents, parent, tag);
  const std::vector<bool> active_in = given_mask(tangents);
  LinearPart part;
  MappedCall primal = call;
  primal.body = [&](std::vector<Array> blocks) {
    return stage_linear_part(call, std::move(blocks), active_in, *linear, tag, part);
  };
  primal.out_shardings = [&](std::span<const ShapedArray> types) {
    part.shardings = call.out_shardings(types.first(part.active.size()));
    std::vector<const Sharding*> out = part.shardings;
    for (const Residual& r : part.residuals)
      if (!r.outside.node()) out.push_back(r.sharding);
    return out;
  };
  Duals out;
  {
    TraceScope scope(parent);
    std::vector<Array> results = map_over(primal);
    for (Residual& r : part.residuals)
      if (!r.outside.node()) r.outside = results[r.result];
    results.resize(part.active.size());
    out.primals = std::move(results);
  }
  out.tangents = bind_linear_equation(call, part, tangents, active_in, *linear);
  return out;
}

}  // namespace shmap
