#include "core/extend/built_program.h"

#include <utility>

#include "core/base/counted.h"
#include "core/extend/data_access.h"
#include "core/ir/node.h"
#include "core/ir/types_of.h"

namespace shmap {
namespace detail {

namespace {

// The current trace while rules are applied: rules ask it for the axes in scope and whether
// variance is checked.
class TypeTrace final : public Trace {
 public:
  TypeTrace(const AxisEnv* env, bool checks_variance)
      : Trace("JaxprBuilder"), env_(env), checks_variance_(checks_variance) {}
  void process(const Primitive& primitive, std::span<Array>, const Params&, std::span<Array>,
               SourceLine source) override {
    throw TypeError(std::string(primitive.name) +
                    " was called by a rule while an equation was checked: rules of types work on "
                    "types alone" +
                    at_line(source));
  }
  const AxisEnv* axis_env() const override { return env_; }
  bool checks_variance() const override { return checks_variance_; }
  bool staged() const override { return true; }

 private:
  const AxisEnv* env_;
  bool checks_variance_;
};

std::string eqn_text(const Primitive& primitive) {
  return "an equation of " + std::string(primitive.name);
}

}  // namespace

ShapedArray BuiltProgram::own(const ShapedArray& type) const {
  if (type.axes().empty()) return type;
  if (!env_) {
    throw TypeError("JaxprBuilder: a value of type " + to_string(type) +
                    " varies over mesh axes, and none are in scope: give the builder the mesh");
  }
  return type.with_axes(AxisSet(env_, type.axes().mask_in(*env_)));
}

VarRef BuiltProgram::input(const ShapedArray& type) {
  inputs_.push_back(make_ref<const Var>(own(type)));
  states_[inputs_.back().get()] = State::bound;
  return inputs_.back();
}

VarRef BuiltProgram::constant(const Array& value, SourceLine source) {
  const Node& node = checked_node(value, "JaxprBuilder::constant", source);
  if (node.trace != 0) {
    throw TypeError("JaxprBuilder::constant: a traced value of type " + to_string(node.type) +
                    " would leak from its trace: make it an argument of the program" +
                    at_line(source));
  }
  if (node.kind == NodeKind::literal) {
    throw TypeError(
        "JaxprBuilder::constant: a host scalar is a literal: give it to an equation as it is" +
        at_line(source));
  }
  for (std::size_t i = 0; i < consts_.size(); ++i)
    if (consts_[i].node() == value.node()) return constvars_[i];
  constvars_.push_back(make_ref<const Var>(node.type));
  consts_.push_back(value);
  states_[constvars_.back().get()] = State::bound;
  return constvars_.back();
}

VarRef BuiltProgram::unbound(const ShapedArray& type) {
  kept_.push_back(make_ref<const Var>(own(type)));
  states_[kept_.back().get()] = State::unbound;
  return kept_.back();
}

void BuiltProgram::require_bound(const Atom& a, const std::string& where) const {
  if (a.is_literal()) return;
  const auto it = states_.find(a.var());
  if (it == states_.end()) {
    throw TypeError("JaxprBuilder: a variable of type " + to_string(a.type()) + " in " + where +
                    " is of another program: it leaked from there. A program reads its own "
                    "arguments, constants and results of its equations");
  }
  if (it->second == State::unbound) {
    throw TypeError("JaxprBuilder: unbound variable of type " + to_string(a.type()) + " in " +
                    where + ": no equation before it gives its value");
  }
}

BuiltProgram::Checked BuiltProgram::check(const Primitive& primitive, std::vector<Atom> in,
                                          const extend::Params& params, ReadScope& scope) const {
  for (const Atom& a : in) require_bound(a, eqn_text(primitive));
  if (primitive.group && !primitive.interpret && !env_) {
    throw CollectiveError(std::string(primitive.name) +
                          " outside of every shard_map body: unbound axis name; collectives work "
                          "on the blocks of a mapped function");
  }
  TypeTrace trace(env_, checks_variance_);
  TraceScope in_scope(trace);
  Checked eqn{&primitive, std::move(in), nullptr, {}};
  const std::vector<ShapedArray> types = types_of(eqn.in);
  if (env_ && checks_variance_ && !primitive.variance && !primitive.group) {
    const ShapedArray* first = nullptr;
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (eqn.in[i].is_literal()) continue;
      if (first && !(types[i].axes() == first->axes())) {
        throw TypeError("operands of " + eqn_text(primitive) + " have types " + to_string(*first) +
                        " and " + to_string(types[i]) +
                        ", which vary over unlike mesh axes: cast one with pbroadcast");
      }
      first = &types[i];
    }
  }
  eqn.params = read_params(primitive, params, types, scope);
  const int results = result_count(primitive, types, *eqn.params);
  eqn.types.resize(static_cast<std::size_t>(std::max(results, 0)));
  infer_types(primitive, types, *eqn.params, env_, eqn.types);
  return eqn;
}

std::vector<VarRef> BuiltProgram::add(Checked eqn, SourceLine source) {
  std::vector<VarRef> out;
  for (const ShapedArray& type : eqn.types) {
    out.push_back(make_ref<const Var>(type));
    states_[out.back().get()] = State::bound;
  }
  eqns_.push_back({eqn.primitive, std::move(eqn.in), std::move(eqn.params), out, source});
  return out;
}

void BuiltProgram::add_into(Checked eqn, std::span<const VarRef> out, SourceLine source) {
  const std::string where = eqn_text(*eqn.primitive);
  if (out.size() != eqn.types.size()) {
    throw TypeError("JaxprBuilder: " + where + " is to bind " + counted(out.size(), "variable") +
                    ", and has " + counted(eqn.types.size(), "result"));
  }
  for (std::size_t o = 0; o < out.size(); ++o) {
    const auto it = states_.find(out[o].get());
    if (it == states_.end()) {
      throw TypeError("JaxprBuilder: a variable of type " + to_string(out[o]->type) + " that " +
                      where + " is to bind is of another program: it leaked from there");
    }
    bool twice = it->second == State::bound;
    for (std::size_t p = 0; p < o; ++p) twice = twice || out[p] == out[o];
    if (twice) {
      throw TypeError("JaxprBuilder: a variable of type " + to_string(out[o]->type) +
                      " is bound twice, the second time by " + where +
                      ": each variable has one binder");
    }
    const ShapedArray &wanted = out[o]->type, &given = eqn.types[o];
    const bool loose = !checks_variance_ && wanted.axes().contains(given.axes());
    if (!((loose ? given.with_axes(wanted.axes()) : given) == wanted)) {
      throw TypeError("JaxprBuilder: " + where + " gives a value of type " + to_string(given) +
                      " to a variable of type " + to_string(wanted));
    }
  }
  for (const VarRef& v : out) states_[v.get()] = State::bound;
  eqns_.push_back({eqn.primitive, std::move(eqn.in), std::move(eqn.params),
                   std::vector<VarRef>(out.begin(), out.end()), source});
}

JaxprRef BuiltProgram::build(std::span<const Atom> results, SourceLine) {
  for (const Atom& a : results) require_bound(a, "the results");
  auto jaxpr = make_ref<Jaxpr>();
  jaxpr->binders = constvars_;
  jaxpr->binders.insert(jaxpr->binders.end(), inputs_.begin(), inputs_.end());
  jaxpr->eqns = eqns_;
  jaxpr->outs.assign(results.begin(), results.end());
  jaxpr->env = env_;
  jaxpr->checks_variance = checks_variance_;
  typecheck_jaxpr(*jaxpr);
  return jaxpr;
}

}  // namespace detail

namespace extend {

namespace {

using shmap::detail::DataAccess;

// Adds the caller's line to the errors of `f`.
template <class F>
auto at_caller(SourceLine source, F f) {
  const auto text = [&](const Error& e) { return e.what() + at_line_once(e.what(), source); };
  try {
    return f();
  } catch (const CollectiveError& e) {
    throw CollectiveError(text(e));
  } catch (const ValueError& e) {
    throw ValueError(text(e));
  } catch (const TypeError& e) {
    throw TypeError(text(e));
  }
}

std::vector<shmap::Atom> refs(const Atoms& atoms) {
  std::vector<shmap::Atom> list;
  for (const Atom& a : atoms.list()) list.push_back(DataAccess::ref(a));
  return list;
}

std::vector<Var> handles(const std::vector<VarRef>& vars) {
  std::vector<Var> list;
  for (const VarRef& v : vars) list.push_back(DataAccess::var(v));
  return list;
}

}  // namespace

JaxprBuilder::JaxprBuilder()
    : program_(std::make_unique<shmap::detail::BuiltProgram>(nullptr, true)) {}
JaxprBuilder::JaxprBuilder(const AnyMesh& mesh, bool check_vma)
    : program_(std::make_unique<shmap::detail::BuiltProgram>(mesh.env(), check_vma)) {}
JaxprBuilder::~JaxprBuilder() = default;

Var JaxprBuilder::input(const ShapedArray& type) { return DataAccess::var(program_->input(type)); }
Var JaxprBuilder::constant(const Array& value, SourceLine source) {
  return DataAccess::var(program_->constant(value, source));
}
Var JaxprBuilder::var(const ShapedArray& type) { return DataAccess::var(program_->unbound(type)); }

std::vector<Var> JaxprBuilder::eqn(std::string_view primitive, Atoms inputs, const Params& params,
                                   SourceLine source) {
  return eqn(extend::primitive(primitive, source), std::move(inputs), params, source);
}

std::vector<Var> JaxprBuilder::eqn(const AnyPrimitive& primitive, Atoms inputs,
                                   const Params& params, SourceLine source) {
  return at_caller(source, [&] {
    ReadScope scope;
    return handles(program_->add(
        program_->check(DataAccess::ref(primitive), refs(inputs), params, scope), source));
  });
}

void JaxprBuilder::eqn_into(std::vector<Var> outputs, std::string_view primitive, Atoms inputs,
                            const Params& params, SourceLine source) {
  at_caller(source, [&] {
    std::vector<VarRef> out;
    for (const Var& v : outputs) out.push_back(DataAccess::ref(v));
    ReadScope scope;
    program_->add_into(
        program_->check(primitive_of_name(primitive, source), refs(inputs), params, scope), out,
        source);
  });
}

ClosedJaxpr JaxprBuilder::build(Atoms results, SourceLine source) {
  return at_caller(source, [&] {
    const std::vector<shmap::Atom> outs = refs(results);
    return close_jaxpr(program_->build(outs, source), program_->consts());
  });
}

}  // namespace extend
}  // namespace shmap
