#include "core/tracing/make_jaxpr.h"

#include <algorithm>
#include <optional>

#include "core/base/counted.h"
#include "core/base/inline_vector.h"
#include "core/base/scope_names.h"
#include "core/ops/promote.h"
#include "core/runtime/host_transfer.h"
#include "core/tracing/stage_in_body.h"
#include "shmap/eval_shape.h"

namespace shmap {

StagingOptions inherited_options() {
  StagingOptions options;
  options.check_variance = current_trace().checks_variance();
  options.auto_pbroadcast = current_trace().auto_pbroadcast();
  return options;
}

JaxprTrace::JaxprTrace(const char* name, const detail::AxisEnv* env, StagingOptions options,
                       SourceLine made)
    : Trace(name, made), env_(env), options_(options) {}

JaxprTrace::JaxprTrace(const char* name, const Jaxpr& like) : Trace(name, {}), env_(like.env) {
  options_.check_variance = like.checks_variance;
}

Array JaxprTrace::tracer(const VarRef& var) {
  return Array::first(new TracerNode(var->type, id(), var));
}

Array JaxprTrace::argument(const ShapedArray& type) {
  // A type written by hand has an axis environment of its own; here its axes become those of the
  // program.
  const AxisSet& axes = type.axes();
  arguments_.push_back(make_ref<const Var>(
      axes.empty() || !env_ ? type : type.with_axes(AxisSet(env_, axes.mask_in(*env_)))));
  Array x = tracer(arguments_.back());
  node_of(x)->origin.op = kArgument;
  return x;
}

Atom JaxprTrace::atom(const Array& x, const char* what, SourceLine source) {
  const Node& node = checked_node(x, what, source);
  if (node.trace == id()) return Atom(static_cast<const TracerNode&>(node).var);
  if (node.kind == NodeKind::literal) return Atom(x);
  if (node.trace != 0 && !is_staged(x)) {
    if (!is_active(node.trace)) throw_escaped(node, what, source);
    // A trace that began after this one may work on values of this one, but not the reverse: such a
    // value would leak. Only a user's rule that captures a value can cause that.
    if (ClosedFunction::is_running() && node.trace > id()) throw_escaped(node, what, source);
  }
  const auto [it, fresh] = constant_of_.try_emplace(x.node(), constants_.size());
  if (fresh) constants_.push_back({x, make_ref<const Var>(node.type)});
  return Atom(constants_[it->second].var);
}

Array JaxprTrace::lift(const Array& x, const char* what, SourceLine source) {
  if (is_mine(x)) return x;
  const Atom a = atom(x, what, source);
  return a.is_literal() ? x : tracer(a.ref());
}

void JaxprTrace::unify_variance(const Primitive& primitive, std::span<Array> in,
                                SourceLine source) {
  AxisSet all;
  for (const Array& x : in) all = all | node_of(x)->type.axes();
  if (all.empty()) return;
  if (!casts()) return require_equal_variance(primitive.name, in, source);
  for (Array& x : in)
    if (node_of(x)->kind != NodeKind::literal) x = vary(x, all, source);
}

Array JaxprTrace::vary(const Array& x, const AxisSet& axes, SourceLine source) {
  const AxisSet missing = axes - node_of(x)->type.axes();
  if (missing.empty()) return x;
  if (options_.below && !is_staged(x)) {
    TraceScope below(*options_.below);
    return options_.below->vary(x, axes, source);
  }
  TraceScope scope(*this);
  const Array mine = lift(x, "pbroadcast", source);
  // A literal is equal on all devices, so that any variance fits it. As an argument of a program a
  // literal becomes a variable.
  if (node_of(mine)->kind == NodeKind::literal) return cast_to_varying(mine, missing, source);
  const VarRef var = static_cast<const TracerNode*>(node_of(mine))->var;
  for (const Cast& c : casts_[var.get()])
    if (c.axes == missing) return c.value;
  Array cast = cast_to_varying(mine, missing, source);
  casts_[var.get()].push_back({missing, cast});
  return cast;
}

void JaxprTrace::process(const Primitive& primitive, std::span<Array> in, const Params& params,
                         std::span<Array> out, SourceLine source) {
  for (const Array& x : in) checked_node(x, primitive.name, source);
  if (options_.below &&
      std::none_of(in.begin(), in.end(), [&](const Array& x) { return is_staged(x); })) {
    TraceScope below(*options_.below);
    return options_.below->process(primitive, in, params, out, source);
  }
  if (partial_eval_hook_ && partial_eval_hook_(*this, primitive, in, params, out, source)) return;
  if (env_ && options_.check_variance && !primitive.variance && !primitive.group)
    unify_variance(primitive, in, source);
  if (primitive.group && !primitive.interpret && !env_) {
    throw CollectiveError(
        std::string(primitive.name) +
        " was called outside of every shard_map body: unbound axis name; collectives work on the "
        "blocks of a mapped function" +
        at_line(source));
  }
  Eqn eqn{&primitive, {}, nullptr, {}, in_current_scope(source)};
  eqn.in.reserve(in.size());
  eqn.out.reserve(out.size());
  InlineVector<ShapedArray, 4> in_types(in.size());
  InlineVector<ShapedArray, 2> out_types(out.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    eqn.in.push_back(atom(in[i], primitive.name, source));
    in_types[i] = eqn.in.back().type();
  }
  try {
    infer_types(primitive, in_types.span(), params, env_, out_types.span());
  } catch (const ValueError& e) {
    throw ValueError(e.what() + captured_text(in) + at_line(source));
  } catch (const TypeError& e) {
    throw TypeError(e.what() + at_line(source));
  }
  static const std::shared_ptr<const Params> none(std::shared_ptr<const Params>(), &no_params);
  eqn.params = &params == &no_params ? none : std::shared_ptr<const Params>(params.clone());
  for (std::size_t o = 0; o < out.size(); ++o) {
    eqn.out.push_back(make_ref<const Var>(out_types[o]));
    out[o] = tracer(eqn.out.back());
    node_of(out[o])->origin = {primitive.name, source};
  }
  eqns_.push_back(std::move(eqn));
}

namespace {

// The literal for a concrete scalar, which is data of the program rather than of a device; null
// where x is not a concrete scalar.
Array as_literal(const Array& x) {
  const Node* node = node_of(x);
  if (node->kind != NodeKind::stored || node->trace != 0 || node->type.rank() != 0 ||
      node->type.dtype() == DType::prng_key || !x.is_fully_addressable()) {
    return Array();
  }
  const std::vector<std::byte> bytes = copy_to_host(x, "a captured scalar");
  auto* literal = new LiteralNode(node->type);
  std::copy(bytes.begin(), bytes.end(), literal->value);
  return Array::first(literal);
}

}  // namespace

Ref<Jaxpr> JaxprTrace::part(std::vector<VarRef> binders, std::vector<Eqn> eqns,
                            std::vector<Atom> outs) const {
  auto made = make_ref<Jaxpr>();
  made->binders = std::move(binders);
  made->eqns = std::move(eqns);
  made->outs = std::move(outs);
  made->env = env_;
  made->checks_variance = options_.check_variance;
  return made;
}

Traced JaxprTrace::build(std::span<Array> results, const char* what, SourceLine source) {
  std::vector<Atom> outs;
  for (const Array& x : results) outs.push_back(atom(x, what, source));
  Ref<Jaxpr> jaxpr = part({}, std::move(eqns_), std::move(outs));
  Traced traced;
  VarMap<Array> literals;
  for (Constant& c : constants_) {
    if (Array literal = options_.inline_scalars ? as_literal(c.value) : Array(); literal.node()) {
      literals.emplace(c.var.get(), std::move(literal));
    } else {
      jaxpr->binders.push_back(c.var);
      traced.consts.push_back(std::move(c.value));
    }
  }
  jaxpr->binders.insert(jaxpr->binders.end(), arguments_.begin(), arguments_.end());
  if (!literals.empty()) {
    const auto inline_in = [&](std::vector<Atom>& atoms) {
      for (Atom& a : atoms) {
        if (a.is_literal()) continue;
        const auto it = literals.find(a.var());
        if (it != literals.end()) a = Atom(it->second);
      }
    };
    for (Eqn& e : jaxpr->eqns) inline_in(e.in);
    inline_in(jaxpr->outs);
  }
  check_pass(*jaxpr, "tracing");
  traced.jaxpr = std::move(jaxpr);
  return traced;
}

const detail::AxisEnv* env_for(std::span<const ShapedArray> types) {
  if (const detail::AxisEnv* env = current_trace().axis_env()) return env;
  AxisSet all;
  for (const ShapedArray& t : types) all = all | t.axes();
  return all.env();
}

namespace {

// Whether an argument varies over axes that are not in the program's type for it.
bool varies_more(const Jaxpr& jaxpr, std::span<const Array> args) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const Node* node = node_of(args[i]);
    if (node && !jaxpr.binders[i]->type.axes().contains(node->type.axes())) return true;
  }
  return false;
}

}  // namespace

std::vector<Array> eval_jaxpr(const Jaxpr& jaxpr, std::vector<Array> args) {
  Trace& trace = current_trace();
  std::vector<Array> whole;
  if (trace.evaluate(jaxpr, args, whole)) return whole;
  // Programs in parameters use the types of their operands. Where variance is only inferred, the
  // operands of a derivative may vary over more axes than those with which the program was traced.
  if (trace.staged() && trace.axis_env() &&
      (!jaxpr.env || (!trace.checks_variance() && varies_more(jaxpr, args)))) {
    return stage_in_body(jaxpr, std::move(args));
  }
  // The last equation that reads each variable; results are kept to the end.
  VarMap<std::size_t> last;
  for (std::size_t e = 0; e < jaxpr.eqns.size(); ++e)
    for (const Atom& a : jaxpr.eqns[e].in)
      if (!a.is_literal()) last[a.var()] = e;
  for (const Atom& a : jaxpr.outs)
    if (!a.is_literal()) last[a.var()] = jaxpr.eqns.size();

  VarMap<Array> values;
  for (std::size_t i = 0; i < jaxpr.binders.size(); ++i)
    if (last.count(jaxpr.binders[i].get()))
      values.emplace(jaxpr.binders[i].get(), std::move(args[i]));
  args.clear();
  for (std::size_t e = 0; e < jaxpr.eqns.size(); ++e) {
    const Eqn& eqn = jaxpr.eqns[e];
    std::vector<Array> in;
    in.reserve(eqn.in.size());
    for (const Atom& a : eqn.in) in.push_back(a.is_literal() ? a.literal() : values.at(a.var()));
    for (const Atom& a : eqn.in)
      if (!a.is_literal() && last[a.var()] == e) values.erase(a.var());
    std::vector<Array> out(eqn.out.size());
    std::optional<ScopesOf> inside;
    if (eqn.primitive->interpret) inside.emplace(eqn.source);
    current_trace().process(*eqn.primitive, in, *eqn.params, out, eqn.source);
    for (std::size_t o = 0; o < out.size(); ++o)
      if (last.count(eqn.out[o].get())) values.emplace(eqn.out[o].get(), std::move(out[o]));
  }
  std::vector<Array> results;
  for (const Atom& a : jaxpr.outs)
    results.push_back(a.is_literal() ? a.literal() : values.at(a.var()));
  return results;
}

std::vector<Array> eval_jaxpr(const ClosedJaxpr& jaxpr, std::vector<Array> args,
                              SourceLine source) {
  const detail::ClosedJaxprImpl& impl = jaxpr.impl();
  const std::size_t n_consts = impl.consts.size();
  const std::size_t wanted = impl.jaxpr->binders.size() - n_consts;
  if (args.size() != wanted) {
    throw ValueError("eval_jaxpr: the program takes " + counted(wanted, "argument") + ", and " +
                     std::to_string(args.size()) + (args.size() == 1 ? " was" : " were") +
                     " given" + at_line(source));
  }
  for (std::size_t i = 0; i < wanted; ++i) {
    const ShapedArray& type = impl.jaxpr->binders[n_consts + i]->type;
    if (checked_node(args[i], "eval_jaxpr", source).kind == NodeKind::literal)
      args[i] = convert_operand(args[i], type.dtype(), "eval_jaxpr", source, type.weak());
    const ShapedArray& given = node_of(args[i])->type;
    if (given.dtype() != type.dtype() || !(given.dims() == type.dims())) {
      throw TypeError("eval_jaxpr: args[" + std::to_string(i) + "] has type " + to_string(given) +
                      ", and the program's argument has type " + to_string(type) +
                      ": convert it with astype or reshape it" + at_line(source));
    }
  }
  args.insert(args.begin(), impl.consts.begin(), impl.consts.end());
  return eval_jaxpr(*impl.jaxpr, std::move(args));
}

Array abstract_array(const ShapedArray& type) { return detail::leaf_of_type(type); }

}  // namespace shmap
