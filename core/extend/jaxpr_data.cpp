// The public views of programs (equations, variables, parameters), and interpreters over them.
#include <algorithm>
#include <ostream>

#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "core/extend/data_access.h"
#include "core/extend/param_reader.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ops/promote.h"
#include "shmap/extend/interpreters.h"

namespace shmap {

namespace detail {

extend::Var DataAccess::var(const VarRef& var) {
  extend::Var handle;
  handle.var_ = std::shared_ptr<const void>(var.get(), [keep = var](const void*) {});
  return handle;
}
VarRef DataAccess::ref(const extend::Var& var) {
  if (!var.var_) throw ValueError("extend::Var: the variable is empty: none was assigned to it");
  return VarRef(static_cast<const shmap::Var*>(var.var_.get()));
}

extend::Atom DataAccess::atom(const shmap::Atom& atom) {
  if (atom.is_literal()) return extend::Literal(atom.literal());
  return var(atom.ref());
}
shmap::Atom DataAccess::ref(const extend::Atom& atom) {
  if (atom.is_literal()) return shmap::Atom(atom.literal().value());
  return shmap::Atom(ref(atom.var()));
}

extend::Eqn DataAccess::eqn(const JaxprRef& owner, const shmap::Eqn& eqn) {
  extend::Eqn handle;
  handle.eqn_ = std::make_shared<const EqnHandle>(EqnHandle{owner, &eqn, params_of(*eqn.params)});
  return handle;
}

extend::AnyPrimitive DataAccess::primitive(const shmap::Primitive& primitive) {
  extend::AnyPrimitive handle;
  handle.name_ = primitive.name;
  handle.primitive_ = &primitive;
  return handle;
}
const shmap::Primitive& DataAccess::ref(const extend::AnyPrimitive& primitive) {
  if (!primitive.primitive_)
    throw ValueError("extend::AnyPrimitive: it is empty: look one up with extend::primitive");
  return *static_cast<const shmap::Primitive*>(primitive.primitive_);
}

void throw_bound_twice(const ShapedArray& type) {
  throw ValueError("extend::Environment: a variable of type " + to_string(type) +
                   " was given a value twice: each has one");
}
void throw_unbound(const ShapedArray& type) {
  throw ValueError("extend::Environment: a variable of type " + to_string(type) +
                   " has no value: write one before it is read");
}
void throw_value_count(std::size_t vars, std::size_t values) {
  throw ValueError("extend::Environment: " + counted(values, "value") + " for " +
                   counted(vars, "variable") + ": one is wanted for each");
}

}  // namespace detail

const Primitive& primitive_of_name(std::string_view name, SourceLine source) {
  ensure_started();
  if (const Primitive* p = find_primitive(name)) return *p;
  if (const Primitive* p = find_user_primitive(name)) return *p;
  std::vector<std::string> known = extend::primitive_names();
  const std::vector<std::string> users = user_primitive_names();
  known.insert(known.end(), users.begin(), users.end());
  throw ValueError("extend: there is no primitive '" + std::string(name) + "'" +
                   did_you_mean(name, known) +
                   ": extend::primitive_names() lists the library's, and an extend::Primitive that "
                   "a program has made is found by its name too" +
                   at_line(source));
}

namespace {

const Jaxpr& program_of(const ClosedJaxpr& jaxpr) { return *jaxpr.impl().jaxpr; }

std::vector<Array> bind_primitive(const Primitive& primitive, const Params& params,
                                  std::vector<Array> in, std::size_t results, SourceLine source) {
  for (const Array& x : in) checked_node(x, primitive.name, source);
  prepare_user_operands(primitive, params, in);
  std::vector<Array> out(results);
  current_trace().process(primitive, in, params, out, source);
  return out;
}

}  // namespace

namespace extend {

const ShapedArray& Var::type() const {
  return static_cast<const shmap::Var*>(shmap::detail::DataAccess::ref(*this).get())->type;
}

Literal::Literal(Array value, SourceLine source) : value_(std::move(value)) {
  if (checked_node(value_, "extend::Literal", source).kind != NodeKind::literal) {
    throw TypeError("extend::Literal: an array of type " + shmap::to_string(value_.type()) +
                    " is not a host scalar: make it a constant or an argument of the program" +
                    at_line(source));
  }
}

const Var& Atom::var() const {
  if (!var_)
    throw ValueError(
        "extend::Atom: this atom is a literal and not a variable: ask is_literal() first");
  return *var_;
}
const Literal& Atom::literal() const {
  if (!literal_)
    throw ValueError(
        "extend::Atom: this atom is a variable and not a literal: ask is_literal() first");
  return *literal_;
}

std::ostream& operator<<(std::ostream& out, const AnyPrimitive& p) { return out << p.name(); }

AnyPrimitive primitive(std::string_view name, SourceLine source) {
  return shmap::detail::DataAccess::primitive(primitive_of_name(name, source));
}

std::vector<std::string> primitive_names() {
  ensure_started();
  std::vector<std::string> names;
  for (const shmap::Primitive* p : all_primitives()) names.emplace_back(p->name);
  return names;
}

Arrays AnyPrimitive::bind(Arrays operands, const Params& params, SourceLine source) const {
  ensure_started();
  const shmap::Primitive& p = shmap::detail::DataAccess::ref(*this);
  std::vector<ShapedArray> types;
  for (const Array& x : operands) types.push_back(checked_node(x, p.name, source).type);
  std::shared_ptr<const shmap::Params> made;
  std::size_t results = 0;
  try {
    ReadScope scope;
    made = read_params(p, params, types, scope);
    results = static_cast<std::size_t>(result_count(p, types, *made));
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line_once(e.what(), source));
  } catch (const TypeError& e) {
    throw TypeError(e.what() + at_line_once(e.what(), source));
  }
  return bind_primitive(p, *made, std::move(operands), results, source);
}

AnyPrimitive Eqn::primitive() const {
  return shmap::detail::DataAccess::primitive(*eqn_->eqn->primitive);
}
std::vector<Atom> Eqn::inputs() const {
  std::vector<Atom> atoms;
  for (const shmap::Atom& a : eqn_->eqn->in) atoms.push_back(shmap::detail::DataAccess::atom(a));
  return atoms;
}
std::vector<Var> Eqn::outputs() const {
  std::vector<Var> vars;
  for (const VarRef& v : eqn_->eqn->out) vars.push_back(shmap::detail::DataAccess::var(v));
  return vars;
}
std::vector<std::string> Eqn::param_names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : eqn_->params) names.push_back(name);
  return names;
}
const Params& Eqn::params() const { return eqn_->params; }
std::vector<ClosedJaxpr> Eqn::sub_jaxprs() const {
  std::vector<ClosedJaxpr> programs;
  for (const Jaxpr* inner : inner_jaxprs(*eqn_->eqn->params))
    programs.push_back(close_jaxpr(JaxprRef(inner), {}));
  return programs;
}
SourceLine Eqn::source() const { return eqn_->eqn->source; }
bool Eqn::has_effect() const { return shmap::has_effect(*eqn_->eqn); }

std::vector<Eqn> eqns(const ClosedJaxpr& jaxpr) {
  std::vector<Eqn> all;
  for (const shmap::Eqn& e : program_of(jaxpr).eqns)
    all.push_back(shmap::detail::DataAccess::eqn(jaxpr.impl().jaxpr, e));
  return all;
}

std::vector<Var> in_vars(const ClosedJaxpr& jaxpr) {
  const std::vector<VarRef>& binders = program_of(jaxpr).binders;
  std::vector<Var> vars;
  for (std::size_t i = jaxpr.consts().size(); i < binders.size(); ++i)
    vars.push_back(shmap::detail::DataAccess::var(binders[i]));
  return vars;
}
std::vector<Var> constvars(const ClosedJaxpr& jaxpr) {
  std::vector<Var> vars;
  for (std::size_t i = 0; i < jaxpr.consts().size(); ++i)
    vars.push_back(shmap::detail::DataAccess::var(program_of(jaxpr).binders[i]));
  return vars;
}
std::vector<Array> consts(const ClosedJaxpr& jaxpr) { return jaxpr.consts(); }
std::vector<Atom> out_atoms(const ClosedJaxpr& jaxpr) {
  std::vector<Atom> atoms;
  for (const shmap::Atom& a : program_of(jaxpr).outs)
    atoms.push_back(shmap::detail::DataAccess::atom(a));
  return atoms;
}

Arrays bind(const Eqn& eqn, Arrays inputs, SourceLine source) {
  const shmap::Eqn& e = *shmap::detail::DataAccess::handle(eqn).eqn;
  if (inputs.size() != e.in.size()) {
    throw ValueError("extend::bind: an equation of " + std::string(e.primitive->name) + " has " +
                     counted(e.in.size(), "operand") + ", and was given " +
                     std::to_string(inputs.size()) + at_line(source));
  }
  return bind_primitive(*e.primitive, *e.params, std::move(inputs), e.out.size(),
                        e.source.file ? e.source : source);
}

Arrays interpret(const ClosedJaxpr& jaxpr, Arrays args, const EqnRule& rule, SourceLine source) {
  const Jaxpr& program = program_of(jaxpr);
  const std::size_t n_consts = jaxpr.consts().size();
  if (args.size() != program.binders.size() - n_consts) {
    throw ValueError("extend::interpret: the program takes " +
                     counted(program.binders.size() - n_consts, "argument") + ", and " +
                     std::to_string(args.size()) + (args.size() == 1 ? " was" : " were") +
                     " given" + at_line(source));
  }
  VarMap<Array> values;
  for (std::size_t i = 0; i < program.binders.size(); ++i)
    values.emplace(program.binders[i].get(),
                   i < n_consts ? jaxpr.consts()[i] : std::move(args[i - n_consts]));
  const auto read = [&](const shmap::Atom& a) {
    return a.is_literal() ? a.literal() : values.at(a.var());
  };
  for (const shmap::Eqn& e : program.eqns) {
    Arrays in;
    for (const shmap::Atom& a : e.in) in.push_back(read(a));
    Arrays out = rule(shmap::detail::DataAccess::eqn(jaxpr.impl().jaxpr, e), std::move(in));
    if (out.size() != e.out.size()) {
      throw ValueError("extend::interpret: the rule gave " + std::to_string(out.size()) +
                       " results for an equation of " + e.primitive->name + ", which has " +
                       std::to_string(e.out.size()) + at_line(source));
    }
    for (std::size_t o = 0; o < out.size(); ++o)
      values.insert_or_assign(e.out[o].get(), std::move(out[o]));
  }
  Arrays results;
  for (const shmap::Atom& a : program.outs) results.push_back(read(a));
  return results;
}

}  // namespace extend
}  // namespace shmap
