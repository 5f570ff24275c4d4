#include "shard_map/primitive.h"

#include "collectives/primitives.h"
#include "core/base/counted.h"
#include "core/compiler/lowering/automatic_axes.h"
#include "core/compiler/lowering/lower.h"
#include "core/compiler/lowering/per_device.h"
#include "core/compiler/lowering/reshard_blocks.h"
#include "core/compiler/passes/dead_code.h"
#include "core/ir/pbroadcast.h"
#include "core/ops/elementwise.h"
#include "core/ops/shape_params.h"
#include "core/runtime/reshard.h"
#include "core/runtime/same_values.h"
#include "core/transforms/autodiff/transpose.h"
#include "shard_map/mapped.h"

namespace shmap {

namespace {

std::string specs_text(const std::vector<const Sharding*>& shardings) {
  std::string text = "(";
  for (std::size_t i = 0; i < shardings.size(); ++i)
    text += (i ? ", " : "") + to_string(shardings[i]->spec());
  return text + (shardings.size() == 1 ? ",)" : ")");
}

int count_results(Types, const Params& params) {
  return static_cast<int>(params_as<ShardMapParams>(params).out.size());
}

void eval_types(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<ShardMapParams>(params);
  if (in.size() != p.jaxpr->binders.size()) {
    throw TypeError("shard_map: the body takes " + counted(p.jaxpr->binders.size(), "block") +
                    ", and the equation has " + counted(in.size(), "operand"));
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    const ShapedArray block = block_type(in[i], p.in[i], "shard_map: an operand");
    if (!(block == p.jaxpr->binders[i]->type)) {
      throw TypeError("shard_map: operand " + std::to_string(i) + " of type " + to_string(in[i]) +
                      " has blocks of type " + to_string(block) + ", and the body takes " +
                      to_string(p.jaxpr->binders[i]->type));
    }
  }
  for (std::size_t o = 0; o < out.size(); ++o) {
    const ShapedArray& block = p.jaxpr->outs[o].type();
    const detail::AxisEnv* env = p.over->env();
    out[o] = ShapedArray(p.out[o]->global_shape(block.dims()), block.dtype(), block.weak(),
                         AxisSet(env, block.axes().mask_in(*env) & ~p.axes.own));
  }
}

// The axes of a result's type are found with its shape.
void vary_results(Types, const Params&, const detail::AxisEnv&, std::span<ShapedArray>) {}

Array sum_over(const Array& x, const AxisSet& axes, SourceLine source) {
  return bind(psum_p, x, AxesParams(Axes(axes.names())), source);
}

// A result of a body must be equal along those of the body's own axes that its spec omits. Without
// the check (check_vma = false) the user promises this, and the block's type may still vary.
Array as_promised(Array block, const Sharding* out, const AxisSet& own, SourceLine source) {
  const Node& node = *node_of(block);
  if (node.kind == NodeKind::literal) return block;
  const detail::AxisEnv* env = out->mesh()->env();
  const AxisSet more(env, node.type.axes().mask_in(*env) & own.mask_in(*env) & ~out->mentioned());
  if (more.empty()) return block;
  return bind(assume_equal_p, std::move(block), AxesParams(Axes(more.names())), source);
}

// The body is what each device does: it is inserted unchanged into the program of blocks. Where
// axes are automatic, its operations are lowered, as those of the program around it are.
void lower_shard_map(LowerCall& call) {
  const auto& p = params_as<ShardMapParams>(call.params);
  Lowering& lowering = call.lowering;
  if (p.over != lowering.mesh()) throw_other_mesh(p.over, lowering.mesh(), call.source);
  const std::uint32_t automatic = all_axes(*p.over) & ~p.axes.manual();
  const AxisSet own(p.over->env(), p.axes.own);
  std::vector<LowerValue> args;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const ShapedArray& block = p.jaxpr->binders[i]->type;
    const Sharding* const given = call.in[i].sharding;
    const Sharding* const target =
        given ? joined(p.in[i], part_over(given, automatic), block.dims()) : p.in[i];
    const Array moved =
        lowering.reshard(call.in[i], target, "shard_map: an argument", call.source).block;
    args.push_back({moved, given ? part_over(target, automatic) : nullptr, block});
  }
  std::vector<LowerValue> results;
  if (automatic != 0) {
    results = lowering.program(*p.jaxpr, std::move(args));
  } else {
    std::vector<Array> blocks;
    for (LowerValue& x : args) blocks.push_back(std::move(x.block));
    TraceScope scope(lowering.trace());
    for (Array& x : eval_jaxpr(*p.jaxpr, std::move(blocks)))
      results.push_back({std::move(x), nullptr, {}});
  }
  TraceScope scope(lowering.trace());
  for (std::size_t o = 0; o < results.size(); ++o) {
    LowerValue& x = results[o];
    call.out[o].sharding =
        x.sharding ? joined(p.out[o], x.sharding, p.jaxpr->outs[o].type().dims()) : p.out[o];
    call.out[o].block = as_promised(std::move(x.block), p.out[o], own, call.source);
  }
}

std::shared_ptr<const Params> with_body(const Params& params, std::span<const JaxprRef> programs) {
  auto made = std::make_shared<ShardMapParams>(params_as<ShardMapParams>(params));
  made->jaxpr = programs[0];
  return made;
}

void prune(PruneCall& call) {
  const auto& p = params_as<ShardMapParams>(call.params);
  PrunedJaxpr body = prune_jaxpr(*p.jaxpr, call.wanted, call.memo);
  if (body.jaxpr == p.jaxpr) return;
  auto made = std::make_shared<ShardMapParams>();
  made->over = p.over;
  made->axes = p.axes;
  made->options = p.options;
  made->lines = p.lines;
  for (std::size_t i = 0; i < p.in.size(); ++i) {
    if (!body.kept[i]) continue;
    made->in.push_back(p.in[i]);
    if (!p.names.empty()) made->names.push_back(p.names[i]);
  }
  for (std::size_t o = 0; o < p.out.size(); ++o)
    if (call.wanted[o]) made->out.push_back(p.out[o]);
  made->jaxpr = std::move(body.jaxpr);
  call.kept_in = std::move(body.kept);
  call.kept_out = call.wanted;
  call.pruned = std::move(made);
}

// ---- derivatives
// Blocks with the types that the program takes. They may vary over fewer axes of an outer body that
// does not track variance.
std::vector<Array> vary_as_binders(const Jaxpr& jaxpr, std::vector<Array> blocks,
                                   SourceLine source) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].node()) continue;
    const AxisSet missing = jaxpr.binders[i]->type.axes() - node_of(blocks[i])->type.axes();
    if (!missing.empty()) blocks[i] = cast_to_varying(blocks[i], missing, source);
  }
  return blocks;
}

// The equation as a call whose body evaluates the program.
MappedCall as_call(const ShardMapParams& p, SourceLine source) {
  MappedCall call;
  call.mesh = p.over;
  call.axes = p.axes;
  call.options = p.options;
  call.source = source;
  call.in_shardings = p.in;
  call.body = [&p, source](std::vector<Array> blocks) {
    if (p.options.check_vma && p.axes.outer != 0)
      blocks = vary_as_binders(*p.jaxpr, std::move(blocks), source);
    return eval_jaxpr(*p.jaxpr, std::move(blocks));
  };
  call.out_shardings = [&p](std::span<const ShapedArray>) { return p.out; };
  return call;
}

void interpret(std::span<Array> in, const Params& params, std::span<Array> out, SourceLine source) {
  const auto& p = params_as<ShardMapParams>(params);
  if (p.over->is_abstract()) {
    throw DeviceError("shard_map: the mesh " + describe_axes(*p.over->env()) +
                      " is abstract and has no devices, so the program cannot run" +
                      at_line(source));
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::string name = i < p.names.size() ? p.names[i] : "an argument";
    if (const std::string problem = other_devices(name, in[i], p.over); !problem.empty())
      throw ValueError("shard_map: " + problem + p.lines.text());
  }
  MappedCall call = as_call(p, source);
  for (Array& x : in) call.in.push_back(std::move(x));
  call.names = p.names;
  std::vector<Array> results = run_mapped(std::move(call));
  std::move(results.begin(), results.end(), out.begin());
}

void jvp_shard_map(JvpCall& call) {
  MappedCall mapped = as_call(params_as<ShardMapParams>(call.params), call.source);
  mapped.in.assign(call.primals.begin(), call.primals.end());
  Duals duals = differentiate_mapped(std::move(mapped), call.tangents, call.linear, call.parent, 0);
  std::move(duals.primals.begin(), duals.primals.end(), call.out.begin());
  std::move(duals.tangents.begin(), duals.tangents.end(), call.tangents_out.begin());
}

double ranks_of(const detail::AxisEnv& env, std::uint32_t axes) {
  double n = 1;
  for (std::size_t a = 0; a < env.sizes.size(); ++a)
    if (axes >> a & 1u) n *= static_cast<double>(env.sizes[a]);
  return n;
}

// The transposed shard_map: its operands are the known operands of the equation and the cotangents
// that are not zero, its results the cotangents of the linear operands. The specs of operands and
// results are swapped, and the body is transposed (JEP 17111).
class TransposedBody {
 public:
  explicit TransposedBody(TransposeCall& call)
      : call_(call),
        p_(params_as<ShardMapParams>(call.params)),
        converts_shares_(p_.axes.outer != 0 &&
                         p_.options.check_vma != current_trace().checks_variance()) {}

  void run() {
    MappedCall mapped = as_call(p_, call_.source);
    give_operands(mapped);
    mapped.body = [&](std::vector<Array> blocks) { return transpose(std::move(blocks)); };
    mapped.out_shardings = [&](std::span<const ShapedArray>) {
      std::vector<const Sharding*> out;
      for (const std::size_t i : given_) out.push_back(p_.in[i]);
      return out;
    };
    std::vector<Array> results = map_over(std::move(mapped));
    for (std::size_t k = 0; k < given_.size(); ++k) call_.out[given_[k]] = std::move(results[k]);
  }

 private:
  const detail::AxisEnv& env() const { return *p_.over->env(); }

  void give_operands(MappedCall& mapped) const {
    mapped.in_shardings.clear();
    const auto give = [&](const Array& x, const Sharding* sharding) {
      mapped.in.push_back(x);
      mapped.in_shardings.push_back(sharding);
    };
    for (std::size_t i = 0; i < call_.in.size(); ++i)
      if (!call_.is_linear(i)) give(call_.in[i], p_.in[i]);
    for (std::size_t o = 0; o < call_.cotangents.size(); ++o)
      if (call_.cotangents[o].node()) give(call_.cotangents[o], p_.out[o]);
  }

  // The body: from the blocks of the operands to those of the cotangents that are not zero.
  std::vector<Array> transpose(std::vector<Array> blocks) {
    std::size_t next = 0;
    std::vector<Array> args(call_.in.size()), cotangents(call_.cotangents.size());
    for (std::size_t i = 0; i < args.size(); ++i)
      if (!call_.is_linear(i)) args[i] = std::move(blocks[next++]);
    for (std::size_t o = 0; o < cotangents.size(); ++o)
      if (call_.cotangents[o].node()) cotangents[o] = of_body(o, std::move(blocks[next++]));
    std::vector<Array> found = backward_pass(*p_.jaxpr, std::move(args), std::move(cotangents));
    std::vector<Array> results;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i].node()) continue;
      given_.push_back(i);
      results.push_back(of_operand(i, std::move(found[i])));
    }
    return results;
  }

  // The cotangent of the body's result `o`, from a block of the cotangent of the whole result. If
  // the spec mentions axes over which the body's value does not vary, the result consisted of equal
  // blocks, and their cotangents are summed. Without variance tracking, as in pmap, the cotangent
  // is divided among the axes that the spec omits.
  Array of_body(std::size_t o, Array cotangent) const {
    const std::uint32_t mentioned = p_.out[o]->mentioned();
    const std::uint32_t varies = p_.jaxpr->outs[o].type().axes().mask_in(env());
    if (p_.options.check_vma) {
      if (converts_shares_) cotangent = sum_of_shares(std::move(cotangent), varies);
      const std::uint32_t more = mentioned & ~varies;
      return more ? sum_over(cotangent, AxisSet(&env(), more), call_.source) : cotangent;
    }
    const std::uint32_t around = converts_shares_ ? p_.axes.outer & ~varies : 0;
    return share_of(std::move(cotangent), (p_.axes.own & ~mentioned) | around);
  }

  // A block of the cotangent of operand `i`, from the cotangent of the body's argument. Without
  // variance tracking it is summed over the axes that the spec omits.
  Array of_operand(std::size_t i, Array cotangent) const {
    const std::uint32_t varies = p_.jaxpr->binders[i]->type.axes().mask_in(env());
    const std::uint32_t around = p_.axes.outer & ~varies;
    if (p_.options.check_vma)
      return converts_shares_ ? share_of(std::move(cotangent), around) : cotangent;
    const std::uint32_t rest = p_.axes.own & ~p_.in[i]->mentioned();
    if (ranks_of(env(), rest) > 1)
      cotangent = sum_over(cotangent, AxisSet(&env(), rest), call_.source);
    return converts_shares_ ? sum_of_shares(std::move(cotangent), varies) : cotangent;
  }

  Array share_of(Array cotangent, std::uint32_t axes) const {
    const double n = ranks_of(env(), axes);
    if (n <= 1) return cotangent;
    const Array ranks = scalar_of(cotangent.dtype(), n, call_.source);
    return bind(div_p, cotangent, ranks, no_params, call_.source);
  }
  // The cotangent of a value that varies over the outer axes in `varies`, from the devices' shares,
  // whose type may vary over fewer axes or more.
  Array sum_of_shares(Array cotangent, std::uint32_t varies) const {
    const std::uint32_t has = node_of(cotangent)->type.axes().mask_in(env());
    if (const std::uint32_t missing = p_.axes.outer & ~has)
      cotangent = cast_to_varying(cotangent, AxisSet(&env(), missing), call_.source);
    const std::uint32_t summed = p_.axes.outer & ~varies;
    return summed ? sum_over(cotangent, AxisSet(&env(), summed), call_.source) : cotangent;
  }

  TransposeCall& call_;
  const ShardMapParams& p_;
  // Whether the body around this one and this one differ in what the cotangent of a value is that
  // does not vary over an axis of the outer body: with variance tracking, its cotangent, and
  // without, each device's share of a sum.
  const bool converts_shares_;
  std::vector<std::size_t> given_;  // the operands whose cotangent is not zero
};

void transpose_shard_map(TransposeCall& call) { TransposedBody(call).run(); }

void batch_shard_map(BatchCall& call) {
  MappedCall mapped = as_call(params_as<ShardMapParams>(call.params), call.source);
  mapped.in.assign(call.in.begin(), call.in.end());
  Batch out = batch_mapped(std::move(mapped), call.dims, call.size, current_trace(), 0);
  std::move(out.values.begin(), out.values.end(), call.out.begin());
  std::copy(out.dims.begin(), out.dims.end(), call.out_dims.begin());
}

}  // namespace

std::string MappedLines::text() const {
  return (made.file ? "\n  in the shard_map made at " + made.str() : std::string()) +
         at_line(called);
}

void ShardMapParams::visit(ParamVisitor& v) const {
  if (!options.auto_pbroadcast) v.value("auto_pbroadcast", false);
  if (axes.own != all_axes(*over)) v.value("axis_names", AxisSet(over->env(), axes.own).names());
  v.value("check_vma", options.check_vma);
  v.value("in_specs", std::string_view(specs_text(in)));
  v.value("jaxpr", *jaxpr);
  v.value("mesh", std::string_view("Mesh(" + describe_axes(*over->env()) + ")"));
  v.value("out_specs", std::string_view(specs_text(out)));
}

constinit Primitive shard_map_p = [] {
  Primitive p;
  p.name = "shard_map";
  p.abstract_eval = eval_types;
  p.variance = vary_results;
  p.result_count = count_results;
  p.interpret = interpret;
  p.lower = lower_shard_map;
  p.programs.replace = with_body;
  p.programs.prune = prune;
  p.jvp = Rule<JvpFn>(jvp_shard_map);
  p.transpose = Rule<TransposeFn>(transpose_shard_map);
  p.batching = Rule<BatchFn>(batch_shard_map);
  return p;
}();

void register_shard_map() { register_primitive(shard_map_p); }

}  // namespace shmap
